#pragma once
// Batch normalisation. Networks create their norm layers through a NormFactory and do not depend on the kind: local (this file) or
// synchronised across ranks (nn/sync_batch_norm.h).

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "nn/fused_norm/fused_norm.h"
#include "trainer/distributed.h"

namespace trainer::nn {

// torch.nn.BatchNorm2d's, with its defaults.
struct BatchNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // empty: the running statistics are the plain average over all batches
  bool learns_weight = true;             // false: the weight stays 1; it is a buffer then, not a parameter
};

// Normalises [N, C, H, W] over N, H, W. Parameter and buffer names are PyTorch's: weight, bias, running_mean, running_var,
// num_batches_tracked. Semantics of torch.nn.BatchNorm2d (affine, tracking running statistics).
class BatchNorm2d : public torch::nn::Module {
 public:
  explicit BatchNorm2d(int64_t num_channels, const BatchNormOptions& options = {});
  // Throws UsageError in training when a channel has a single value, because its variance is undefined. An empty batch gives an empty
  // output and zero gradients, and does not change the running statistics.
  torch::Tensor forward(const torch::Tensor& x) { return apply(x, {}, /*relu=*/false); }
  // relu(forward(x) + residual), with nothing added if `residual` is undefined.
  torch::Tensor forward_relu(const torch::Tensor& x, const torch::Tensor& residual = {}) { return apply(x, residual, /*relu=*/true); }
  // From now on computes by one operator (nn/fused_norm), where that takes the input, instead of one for each of normalisation, addition
  // and ReLU.
  void use_fused_operator() { is_fused_ = true; }
  bool uses_fused_operator() const { return is_fused_; }
  // In evaluation the layer computes x * scale + shift, [C] each.
  fused_norm::ScaleAndShift evaluation_scale_and_shift() const;

  // As in Python's Module.to, but not in LibTorch's, num_batches_tracked stays int64.
  using torch::nn::Module::to;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;

  // From now on the layer is in evaluation also while its network is in training: it uses its running statistics and keeps them.
  void freeze_statistics();
  void train(bool on = true) override;

  // Whether batches in training update the running statistics and num_batches_tracked. By default they do.
  void set_updates_statistics(bool updates) { updates_statistics_ = updates; }

  torch::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 protected:
  double eps() const { return options_.eps; }
  // The weight of the next batch in the running statistics.
  double next_batch_weight() const;
  void count_batch();
  // The running mean and variance for a batch in training to update: copies if it must not change those of the layer.
  std::pair<torch::Tensor, torch::Tensor> statistics_to_update() const;
  // The ranks whose batches are normalised together in training; null: this rank's batch alone.
  virtual std::shared_ptr<const distributed::ProcessGroup> joined_group() const { return nullptr; }
  virtual torch::Tensor normalise(const torch::Tensor& x);

 private:
  torch::Tensor apply(const torch::Tensor& x, const torch::Tensor& residual, bool relu);
  fused_norm::Layer evaluation_layer() const;
  torch::Tensor apply_fused(const torch::Tensor& x, const torch::Tensor& residual, bool relu);
  void check_count(const torch::Tensor& x) const;

  BatchNormOptions options_;
  bool is_fused_ = false;
  bool has_frozen_statistics_ = false;
  bool updates_statistics_ = true;
};

using BatchNormPtr = std::shared_ptr<BatchNorm2d>;

// While it exists, batches do not update the running statistics of the model's batch normalisations: for another pass over a batch that
// they have counted already.
class FrozenStatistics {
 public:
  explicit FrozenStatistics(const torch::nn::Module& model);
  ~FrozenStatistics();
  FrozenStatistics(const FrozenStatistics&) = delete;
  FrozenStatistics& operator=(const FrozenStatistics&) = delete;

 private:
  std::vector<BatchNormPtr> layers_;
};

// Makes the norm layers of a network, all of one kind.
class NormFactory {
 public:
  using Make = std::function<BatchNormPtr(int64_t num_channels, const BatchNormOptions& options)>;

  explicit NormFactory(Make make) : make_(std::move(make)) {}
  BatchNormPtr operator()(int64_t num_channels, const BatchNormOptions& options = {}) const { return make_(num_channels, options); }

 private:
  Make make_;
};

NormFactory local_batch_norm();

// Calls BatchNorm2d::use_fused_operator of every batch normalisation below `network`.
void use_fused_norm(const torch::nn::Module& network);

}  // namespace trainer::nn
