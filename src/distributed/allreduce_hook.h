#pragma once
// How the Reducer's buckets travel: summed over the ranks, in a smaller type if asked for. Nothing is divided.

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
  // The last one is on its way: from here to clear() this rank waits for the others.
  void wait(Activity* activity);

 private:
  mutable std::mutex mutex_;  // hooks run on autograd's threads
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> buckets_;
  bool refused_ = false;
  std::optional<Activity::Wait> wait_;
};

// Each bucket on its way as soon as it is full.
std::unique_ptr<c10d::CommHookInterface> make_allreduce_hook(std::shared_ptr<const ProcessGroup> group,
                                                             config::GradientCompression compression, std::shared_ptr<SentBuckets> sent);
// All buckets when the last one is full, in the order of the ranks: for gradients so small that there is nothing to hide.
std::unique_ptr<c10d::CommHookInterface> make_small_allreduce_hook(std::shared_ptr<const ProcessGroup> group);

}  // namespace trainer::distributed
