#pragma once
// Communication hooks for the Reducer's buckets: sums over the ranks, compressed to a smaller type if configured; no averaging.

#include <memory>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <vector>

#include "config/sections/distributed.h"
#include "distributed/process_group.h"

namespace trainer::distributed {

// The buckets that one backward pass has sent.
class SentBuckets {
 public:
  void clear();
  void add(c10::intrusive_ptr<c10::ivalue::Future> bucket);
  // The connection was known to be lost when a bucket was to be sent.
  void refuse();
  // Whether any bucket did not arrive.
  bool failed() const;
  // All buckets are being sent: from now until clear() this rank counts as waiting for the others.
  void wait(Activity* activity);

 private:
  mutable std::mutex mutex_;  // hooks run on autograd's threads
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> buckets_;
  bool refused_ = false;
  std::optional<Activity::Wait> wait_;
};

// Sends each bucket as soon as it is full.
std::unique_ptr<c10d::CommHookInterface> make_allreduce_hook(std::shared_ptr<const ProcessGroup> group,
                                                             config::GradientCompression compression, std::shared_ptr<SentBuckets> sent);
// Sums all buckets when the last one is full, added in rank order: for gradients so small that overlap with backward does not pay.
std::unique_ptr<c10d::CommHookInterface> make_small_allreduce_hook(std::shared_ptr<const ProcessGroup> group);

}  // namespace trainer::distributed
