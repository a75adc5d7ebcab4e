#pragma once
// Distributed data parallelism over c10d's Reducer, with two intended differences from torch.nn.parallel.DistributedDataParallel:
// - Gradients are summed, not averaged, so that ranks with unequal parts of a batch can weight their losses by their numbers of samples.
// - The buckets never depend on what the run did before, so that a resumed run adds gradients in the same order as an uninterrupted run.

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
  kAfterBackward  // one sum in rank order after backward, for small gradients on the CPU, which it costs more time to exchange during it
};

class DataParallel {
 public:
  // Collective. Like the constructor of DistributedDataParallel; the model must also be in its memory format. The kind of gradient exchange
  // is chosen from the size, device and compression of the gradients unless `exchange` is given. In a group without sockets, all functions
  // skip checks and communication. `averages`: whether gradients are averaged over the ranks, not summed.
  DataParallel(torch::nn::Module& model, std::shared_ptr<ProcessGroup> group, const DataParallelOptions& options, bool averages = false,
               std::optional<GradientExchange> exchange = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Call before each micro-step's forward pass; collective in the first micro-step of a step. Throws Error if a parameter was frozen after
  // construction.
  void before_forward(bool is_first, bool is_last);
  // Gradients accumulate locally until the last micro-step, whose backward pass is collective and sums them over the ranks. Throws like
  // DistributedDataParallel::backward().
  void backward(const torch::Tensor& loss, bool is_last);

  void sync_buffers() const;

  // The trained parameters, each once; empty in a group without sockets.
  const std::vector<torch::Tensor>& parameters() const { return parameters_; }
  GradientExchange exchange() const { return exchange_; }
  // The number of elements of each bucket, in the order in which backward sends the buckets.
  std::vector<int64_t> bucket_sizes() const;

 private:
  void connect(torch::nn::Module& model, std::optional<GradientExchange> exchange);
  void make_reducer(std::optional<GradientExchange> exchange);
  void check_all_used() const;
  // Runs one backward pass before training, because the Reducer rebuilds its buckets after its first one.
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
