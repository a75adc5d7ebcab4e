#pragma once
// Distributed data parallelism: every rank has the whole model and a part of each batch, and gradients are summed over the ranks while
// backward runs. The counterpart of torch.nn.parallel.DistributedDataParallel over c10d's own Reducer, with two differences on purpose:
// gradients are summed, not averaged, so that ranks with unequal parts of a batch can weight their losses by their counts; and the
// buckets are a function of the model and of bucket_cap_mb alone, never of what a run has done before, so that a resumed run adds up
// in the same order as a straight one.

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "config/sections/distributed.h"
#include "distributed/process_group.h"

namespace c10d {
class Reducer;
}

namespace trainer::distributed {

class SentBuckets;

class DataParallel {
 public:
  // Gradients on the CPU that take no more than this on all ranks together are summed when backward is done, in the order of the ranks,
  // through shared memory where the ranks run on one host: there, sockets and their threads would cost more than could be hidden.
  static constexpr int64_t kSmallBytes = int64_t{4} * 1024 * 1024;

  // Collective. Checks that the parameters have the same shapes everywhere, and gives every rank those of rank 0, with its buffers. The
  // model is on its device and in its memory format by now, and outlives this. In a group of one without sockets nothing is done, now
  // or later. Throws Error when no parameter is trained.
  DataParallel(torch::nn::Module& model, std::shared_ptr<ProcessGroup> group, const config::DistributedSection& options,
               int64_t small_bytes = kSmallBytes);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Before each micro-step's forward pass; collective when it is the step's first. Throws Error when a parameter was frozen since the
  // constructor.
  void before_forward(bool is_first, bool is_last);
  // Each micro-step's backward pass from `loss`, made of `outputs`. Gradients stay local and add up until the last micro-step, whose
  // backward pass is collective and leaves their sums over the ranks. Throws Error that names the parameters that the loss does not
  // depend on, unless they are allowed, and PeerError when another rank is lost.
  void backward(const torch::Tensor& loss, const torch::Tensor& outputs, bool is_last);

  // Collective: gives every rank the buffers of rank 0. Before validation and checkpoints.
  void sync_buffers() const;

  // Buckets that backward sends, in order: the number of elements of each.
  std::vector<int64_t> bucket_sizes() const;

 private:
  void make_reducer(int64_t small_bytes);
  void check_all_used() const;
  // The Reducer lays out its buckets anew after the first backward pass that it sees: let it see one before training.
  void settle_buckets();

  std::shared_ptr<ProcessGroup> group_;
  config::DistributedSection options_;
  std::vector<std::string> names_;
  std::vector<torch::Tensor> parameters_;
  std::vector<torch::Tensor> buffers_;
  std::shared_ptr<SentBuckets> sent_;
  std::shared_ptr<c10d::Reducer> reducer_;
};

}  // namespace trainer::distributed
