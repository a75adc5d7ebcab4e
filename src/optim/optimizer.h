#pragma once
// Optimizers over LibTorch's fused kernels, with torch.optim's arithmetic and names.

#include <torch/types.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/keys/key_table.h"
#include "optim/options.h"
#include "trainer/state.h"

namespace torch::nn {
class Module;
}

namespace trainer::optim {

// Parameters that share their learning rate and weight decay. All parameters of an optimizer are on one device, of one floating type, dense
// and non-overlapping in memory (for example contiguous or channels_last).
struct ParamGroup {
  std::vector<torch::Tensor> params;
  bool decay = true;                        // false: weight_decay is 0
  double lr_factor = 1;                     // on the learning rate that step() gets
  std::optional<double> weight_decay = {};  // instead of the optimizer's, also if not `decay`
};

// Returns the parameters that require gradients: first those that no item of `sections` names, then those of each item, without those of
// items before it. Unless `decay_norm_and_bias`, parameters with fewer than two dimensions (norm weights, biases) are in a further group
// without weight decay, after the others; not if their item has a weight decay of its own. Groups without parameters are omitted.
std::vector<ParamGroup> group_parameters(const torch::nn::Module& model, bool decay_norm_and_bias,
                                         const std::vector<ParameterGroupOptions>& sections = {});

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One update with this learning rate, times each group's factor, from each parameter's .grad; parameters without a gradient do not
  // change. If `found_inf` (amp::GradScaler's: a float32 scalar on the parameters' device) is 1, neither parameters nor state change; the
  // kernels read it, the host does not (except in sgd.h).
  void step(double lr, const std::optional<torch::Tensor>& found_inf = {});
  // The configured learning rate, which the schedule scales.
  virtual double base_lr() const = 0;
  // Resets the gradients to undefined, so that the next backward writes new ones.
  void zero_grad();
  std::vector<torch::Tensor> parameters() const;
  // Whether step() skips a parameter whose gradient is zero everywhere: no weight decay, no momentum, no count of the step.
  // If so, step() waits for the device once.
  void set_skip_zero_grads(bool skip) { skip_zero_grads_ = skip; }

  size_t num_groups() const { return groups_.size(); }
  double lr_factor(size_t group) const { return groups_[group].lr_factor; }

  // Whether each step() needs a second forward and backward pass: first pass, perturb_parameters(), second pass, step() (see sam.cpp).
  virtual bool needs_second_pass() const { return false; }
  // Whether the gradients have to be summed over the ranks before perturb_parameters().
  virtual bool needs_first_pass_summed() const { return false; }
  // Moves the parameters to the point of the second pass and resets the gradients; step() moves them back. Does not wait for the
  // device. Call only if needs_second_pass().
  virtual void perturb_parameters();

  // The same as torch.optim's state_dict(), so that each can load the other's: "state" by the parameters' numbers, counted over the groups,
  // without parameters that had no update yet, and "param_groups". `lr`: that of the next step, which torch's schedulers leave in the
  // groups and continue from; `scheduler_options`: further learning rates that they keep in each group (LrSchedule::group_factors). All of
  // them are multiplied by the group's factor. Shares the state's memory.
  state::Tree state(double lr, const state::Dict& scheduler_options) const;
  // Restores the state bit for bit, in the parameters' memory layout. Options come from the configuration, so that only the groups' lists
  // of parameters are checked. Throws CheckpointError when these, a shape or a dtype differ; a part may be loaded by then.
  void load_state(const state::View& view);

 protected:
  explicit Optimizer(std::vector<ParamGroup> groups) : groups_(std::move(groups)) {}

  // A group's parameters that have a gradient.
  struct Gradients {
    std::vector<size_t> indices;  // in the group
    std::vector<torch::Tensor> params;
    // In the parameter's memory layout, copied if necessary. The fused kernels address both as flat memory: the CPU kernels ignore
    // strides, the CUDA kernels reject lists whose strides differ.
    std::vector<torch::Tensor> grads;

    void add(size_t index, torch::Tensor param, torch::Tensor grad) {
      indices.push_back(index);
      params.push_back(std::move(param));
      grads.push_back(std::move(grad));
    }
  };
  // One entry per group, in the order of groups_.
  std::vector<Gradients> gather() const;
  // Updates groups_[group], of which `gradients` has at least one parameter; not recorded by autograd. `lr`: the group's.
  virtual void update(size_t group, const Gradients& gradients, double lr, const std::optional<torch::Tensor>& found_inf) = 0;
  // Moves the parameters back to where they were before perturb_parameters().
  virtual void restore_parameters() {}

  // The tensors that torch.optim keeps for groups_[group].params[index], under torch.optim's names; empty before the first update.
  virtual state::Dict param_state(size_t group, size_t index) const = 0;
  // Without a view, resets the state to that before the first update.
  virtual void load_param_state(size_t group, size_t index, const std::optional<state::View>& view) = 0;
  // Adds the group's options under torch.optim's names, without learning rates.
  virtual void add_options(size_t group, state::Dict& options) const = 0;

  // The weight decay of groups_[group], where that of the configuration is `configured`.
  double weight_decay_of(size_t group, double configured) const;

  std::vector<ParamGroup> groups_;

 private:
  static void drop_zeros(std::vector<Gradients>& all);
  void check_groups(const state::View& param_groups) const;

  bool skip_zero_grads_ = false;
};

using OptimizerRegistry = Registry<std::unique_ptr<Optimizer>, std::vector<ParamGroup>>;

const OptimizerRegistry& optimizer_registry();
// Makes an optimizer of optimizer_registry(); `skip_zero_grads` as in set_skip_zero_grads().
std::unique_ptr<Optimizer> make_optimizer(const ComponentConfig& component, std::vector<ParamGroup> groups, bool skip_zero_grads = false);

// Returns 1 if any gradient has an infinite or NaN element, else 0, as a float32 scalar on the parameters' device: the `found_inf` of
// step(). Does not wait for the device.
torch::Tensor find_non_finite(const std::vector<torch::Tensor>& parameters);
// The 2-norm of all elements of all tensors (at least one), as a scalar tensor on their device. Does not wait for the device.
torch::Tensor total_norm(const std::vector<torch::Tensor>& tensors);
// Scales all gradients by min(1, max_norm / (norm + 1e-6)), like torch.nn.utils.clip_grad_norm_, without waiting for the device.
// Returns the 2-norm before scaling, as a scalar tensor on the device; 0 if there are no gradients.
torch::Tensor clip_grad_norm(const std::vector<torch::Tensor>& parameters, double max_norm);

}  // namespace trainer::optim
