#pragma once

#include <memory>

#include "base/log.h"
#include "device/placement.h"
#include "distributed/agreement.h"
#include "train/engine/parts.h"

namespace trainer::run {

// This process in a run: its device, its process groups and its log.
struct Rank {
  int number() const { return ranks.world->rank(); }

  std::shared_ptr<Logger> logger;
  device::Placement placement = {};
  engine::Ranks ranks = {};
  distributed::StartupBarrier barrier = {};
  int local_rank = 0;  // the index among the ranks of this host
};

}  // namespace trainer::run
