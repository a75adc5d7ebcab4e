#pragma once
// Which samples and batches of an epoch each rank takes.

#include <cstdint>
#include <vector>

#include "engine/plan.h"

namespace trainer::inspection {

// Consecutive batches of the same size.
struct BatchRun {
  int64_t count = 0;
  int64_t size = 0;  // samples
  bool operator==(const BatchRun&) const = default;
};

// Consecutive ranks that take batches of the same sizes.
struct RankGroup {
  int first_rank = 0;
  int last_rank = 0;
  int64_t num_samples = 0;        // of each of these ranks
  std::vector<BatchRun> batches;  // of each of them, in order
  bool operator==(const RankGroup&) const = default;
};

// The first epoch. Rank r takes every world_size-th position of the order that all ranks share, from position r on.
struct RankPlan {
  std::vector<RankGroup> groups;
  int64_t num_repeated = 0;  // samples that are taken a second time, to make the parts equal
  int64_t num_left_out = 0;  // samples that no rank takes
};

RankPlan make_rank_plan(const engine::Plan& plan);

}  // namespace trainer::inspection
