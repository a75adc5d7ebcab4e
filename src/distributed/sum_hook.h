#pragma once
// How the Reducer's buckets travel: summed over the ranks, in a smaller type if asked for. Nothing is divided.

#include <atomic>
#include <memory>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "config/sections/distributed.h"

namespace trainer::distributed {

// What has become of the buckets that were sent.
struct SentBuckets {
  std::atomic<bool> failed = false;
};

std::unique_ptr<c10d::CommHookInterface> make_sum_hook(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                                       config::GradientCompression compression, std::shared_ptr<SentBuckets> sent);

}  // namespace trainer::distributed
