#pragma once
// Batch normalisation behind a factory, so that a network takes its norm layers without knowing their kind: local here, synchronised
// across ranks in nn/sync_batch_norm.h.

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>

namespace trainer::nn {

// Normalises [N, C, H, W] over N, H, W. Parameter and buffer names are PyTorch's: weight, bias, running_mean, running_var,
// num_batches_tracked. Semantics of torch.nn.BatchNorm2d (eps 1e-5, momentum 0.1, affine, tracking running statistics); without a
// momentum the running statistics are the plain average over all batches.
class BatchNorm2d : public torch::nn::Module {
 public:
  explicit BatchNorm2d(int64_t num_channels, double eps = 1e-5, std::optional<double> momentum = 0.1);
  // Throws UsageError in training when a channel has a single value, whose variance means nothing. An empty batch gives an empty output
  // and gradients of zero, and is not tracked.
  virtual torch::Tensor forward(const torch::Tensor& x);

  // Like Python's Module.to, and unlike LibTorch's: num_batches_tracked stays int64.
  using torch::nn::Module::to;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;

  torch::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 protected:
  double eps() const { return eps_; }
  // The weight of the next batch in the running statistics.
  double next_batch_weight() const;
  void count_batch();

 private:
  double eps_;
  std::optional<double> momentum_;
};

using BatchNormPtr = std::shared_ptr<BatchNorm2d>;
using NormFactory = std::function<BatchNormPtr(int64_t num_channels)>;

NormFactory local_batch_norm();

}  // namespace trainer::nn
