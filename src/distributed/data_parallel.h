#pragma once
// Distributed data parallelism: every rank has the whole model and a part of each batch, and gradients are summed over the ranks while
// backward runs. Like torch.nn.parallel.DistributedDataParallel, it uses c10d's Reducer. There are two intended differences:
// - Gradients are summed, not averaged, so that ranks with unequal parts of a batch can weight their losses by their numbers of samples.
// - The buckets depend only on the model and the options, never on what the run did before, so that a resumed run adds gradients in the
//   same order as an uninterrupted run.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "distributed/packed_tensors.h"
#include "trainer/distributed.h"
#include "trainer/options.h"
#include "trainer/torch.h"

namespace c10d {
class Logger;
class Reducer;
}  // namespace c10d

namespace trainer::distributed {

class SentBuckets;

enum class GradientExchange {
  kAllReduce,     // c10d's all_reduce for each bucket while backward runs
  kSharedMemory,  // the same sums through shared memory; for ranks on one host with gradients on the CPU
  kAfterBackward  // one sum in rank order after backward, through shared memory if all ranks are on one host; for small gradients on the
                  // CPU, for which overlapping the exchange with backward costs more time than it saves
};

class DataParallel {
 public:
  // Collective. Checks that the parameters have the same shapes on all ranks, and broadcasts the parameters and buffers of rank 0. The kind
  // of gradient exchange is chosen from the size, device and compression of the gradients unless `exchange` is given. The model must
  // already be on its device and in its memory format, and must outlive this object. In a group of one rank without sockets, the
  // constructor and all methods skip checks and communication. `averages`: whether gradients are averaged over the ranks, not summed.
  // Throws Error if the model has no trainable parameter; UsageError if its buffers are on several devices, the group is null, or an option
  // is out of range.
  DataParallel(torch::nn::Module& model, std::shared_ptr<ProcessGroup> group, const DataParallelOptions& options, bool averages = false,
               std::optional<GradientExchange> exchange = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Call before each micro-step's forward pass; collective in the first micro-step of a step. Throws Error if a parameter was frozen after
  // construction.
  void before_forward(bool is_first, bool is_last);
  // Runs the backward pass of a micro-step. Gradients accumulate locally until the last micro-step, whose backward pass is collective and
  // sums them over the ranks. Throws Error with the names of the parameters that the loss does not depend on, unless unused parameters are
  // allowed. Throws PeerError if the connection to another rank is lost.
  void backward(const torch::Tensor& loss, bool is_last);

  // Collective: broadcasts the buffers of rank 0. Call before validation and checkpoints.
  void sync_buffers() const;

  // The trained parameters, each once; empty in a group of one rank without sockets.
  const std::vector<torch::Tensor>& parameters() const { return parameters_; }
  GradientExchange exchange() const { return exchange_; }
  // The number of elements of each bucket, in the order in which backward sends the buckets.
  std::vector<int64_t> bucket_sizes() const;

 private:
  // Makes the parameters and buffers of all ranks equal, and the Reducer.
  void connect(torch::nn::Module& model, std::optional<GradientExchange> exchange);
  void make_reducer(std::optional<GradientExchange> exchange);
  void check_all_used() const;
  // Runs one backward pass before training, because the Reducer rebuilds its buckets after its first backward pass: the first step of a
  // resumed run would otherwise use different buckets from the same step of an uninterrupted run.
  void settle_buckets();

  std::shared_ptr<ProcessGroup> group_;
  DataParallelOptions options_;
  bool averages_;
  GradientExchange exchange_ = GradientExchange::kAllReduce;
  std::vector<std::string> names_;
  std::vector<torch::Tensor> parameters_;
  std::vector<bool> is_sparse_;  // whether the gradient of each parameter is sparse
  PackedTensors buffers_;
  std::shared_ptr<SentBuckets> sent_;
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;  // the Reducer holds a weak reference
};

}  // namespace trainer::distributed
