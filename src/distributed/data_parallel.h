#pragma once
// Distributed data parallelism: every rank has the whole model and a part of each batch, and gradients are summed over the ranks while
// backward runs. The counterpart of torch.nn.parallel.DistributedDataParallel over c10d's own Reducer, with two intended differences:
// gradients are summed, not averaged, so that ranks with unequal parts of a batch can weight their losses by their counts; and the
// buckets depend only on the model and bucket_cap_mb, never on what the run did before, so that a resumed run adds gradients in the
// same order as an uninterrupted one.

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "distributed/packed_tensors.h"
#include "trainer/distributed.h"
#include "trainer/options.h"

namespace c10d {
class Reducer;
}

namespace trainer::distributed {

class SentBuckets;

enum class GradientExchange {
  kAllReduce,     // c10d's all_reduce of each bucket while backward runs
  kSharedMemory,  // the same sums through shared memory; for gradients on the CPU of ranks on one host
  kAfterBackward  // one sum in rank order after backward, through shared memory on one host; for gradients on the CPU that are so small
                  // that sockets and their threads cost more than overlap with backward saves
};

class DataParallel {
 public:
  // Collective. Checks that the parameters have the same shapes on all ranks, and broadcasts the parameters and buffers of rank 0. The
  // exchange of gradients is chosen by their size and place unless it is given. The model must already be on its device and in its memory
  // format, and must outlive this object. In a group of one without sockets, omits all checks and communication, here and later. Throws
  // Error when no parameter is trained.
  DataParallel(torch::nn::Module& model, std::shared_ptr<ProcessGroup> group, const DataParallelOptions& options,
               std::optional<GradientExchange> exchange = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Call before each micro-step's forward pass; collective in the first micro-step of a step. Throws Error when a parameter was frozen
  // since the constructor.
  void before_forward(bool is_first, bool is_last);
  // Each micro-step's backward pass from `loss`, computed from `outputs`. Gradients accumulate locally until the last micro-step, whose
  // backward pass is collective and leaves the sums over the ranks. Throws Error with the names of parameters that the loss does not
  // depend on, unless unused parameters are allowed, and PeerError when another rank is lost.
  void backward(const torch::Tensor& loss, const torch::Tensor& outputs, bool is_last);

  // Collective: broadcasts the buffers of rank 0. Call before validation and checkpoints.
  void sync_buffers() const;

  GradientExchange exchange() const { return exchange_; }
  // The number of elements of each bucket, in the order in which backward sends them.
  std::vector<int64_t> bucket_sizes() const;

 private:
  void make_reducer(std::optional<GradientExchange> exchange);
  void check_all_used() const;
  // The Reducer rebuilds its buckets after its first backward pass: run one before training.
  void settle_buckets();

  std::shared_ptr<ProcessGroup> group_;
  DataParallelOptions options_;
  GradientExchange exchange_ = GradientExchange::kAllReduce;
  std::vector<std::string> names_;
  std::vector<torch::Tensor> parameters_;
  PackedTensors buffers_;
  std::shared_ptr<SentBuckets> sent_;
  std::shared_ptr<c10d::Reducer> reducer_;
};

}  // namespace trainer::distributed
