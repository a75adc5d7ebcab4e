#pragma once
// Optimizers over LibTorch's fused kernels, with torch.optim's arithmetic and names.

#include <torch/torch.h>

#include <memory>
#include <utility>
#include <vector>

#include "config/sections/optimization.h"

namespace trainer::optim {

// Parameters that share their weight decay. All parameters of an optimizer are on one device, of one floating type, dense and
// without overlap in memory (contiguous or channels_last, say).
struct ParamGroup {
  std::vector<torch::Tensor> params;
  bool decay = true;  // false: weight_decay is taken as 0
};

// All parameters in one group, or those with fewer than two dimensions (norm weights, biases) in a second without weight decay.
// A group without parameters is left out.
std::vector<ParamGroup> group_parameters(const torch::nn::Module& model, bool decay_norm_and_bias);

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One update with this learning rate, from each parameter's .grad; parameters without a gradient are left alone.
  virtual void step(double lr) = 0;
  // The learning rate of the configuration, which the schedule scales.
  virtual double base_lr() const = 0;
  // Drops the gradients, so that the next backward writes fresh ones.
  void zero_grad();
  std::vector<torch::Tensor> parameters() const;

 protected:
  explicit Optimizer(std::vector<ParamGroup> groups) : groups_(std::move(groups)) {}
  // The parameter's gradient in the parameter's memory layout, copied if need be; undefined without one. The fused kernels walk
  // through both by address: the CPU's do not look at strides, CUDA's refuse lists that differ in them.
  static torch::Tensor aligned_grad(const torch::Tensor& param);

  std::vector<ParamGroup> groups_;
};

// Base of an optimizer's keys, which know how to build it.
struct OptimizerOptions : config::Options {
  // Throws UsageError on values that contradict each other.
  virtual std::unique_ptr<Optimizer> make(std::vector<ParamGroup> groups) const = 0;
};

config::Family optimizer_family();
// `part` must come from optimizer_family(). Throws UsageError on values that contradict each other.
std::unique_ptr<Optimizer> make_optimizer(const config::Part& part, std::vector<ParamGroup> groups);

// Scales all gradients by min(1, max_norm / (norm + 1e-6)), like torch.nn.utils.clip_grad_norm_, without waiting for the device.
// Returns the 2-norm before, as a scalar tensor on the device; without any gradient 0.
torch::Tensor clip_grad_norm(const std::vector<torch::Tensor>& parameters, double max_norm);

}  // namespace trainer::optim
