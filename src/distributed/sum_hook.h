#pragma once
// How the Reducer's buckets travel: summed over the ranks, in a smaller type if asked for. Nothing is divided.

#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <vector>

#include "config/sections/distributed.h"

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

 private:
  mutable std::mutex mutex_;  // hooks run on autograd's threads
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> buckets_;
  bool refused_ = false;
};

std::unique_ptr<c10d::CommHookInterface> make_sum_hook(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                                       config::GradientCompression compression, std::shared_ptr<SentBuckets> sent);

}  // namespace trainer::distributed
