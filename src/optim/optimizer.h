#pragma once
// Optimizers over LibTorch's fused kernels, with torch.optim's arithmetic and names.

#include <torch/types.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "config/key_table.h"
#include "state/view.h"

namespace torch::nn {
class Module;
}

namespace trainer::optim {

// Parameters that share their weight decay. All parameters of an optimizer are on one device, of one floating-point dtype, dense and
// without overlap in memory (for example contiguous or channels_last).
struct ParamGroup {
  std::vector<torch::Tensor> params;
  bool decay = true;  // false: weight_decay is taken as 0
};

// All parameters in one group, or those with fewer than two dimensions (norm weights, biases) in a second without weight decay.
// Empty groups are omitted.
std::vector<ParamGroup> group_parameters(const torch::nn::Module& model, bool decay_norm_and_bias);

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One update with this learning rate, from each parameter's .grad; parameters without a gradient do not change. If `found_inf` (of
  // amp::GradScaler: a float32 scalar on the parameters' device) is 1, neither parameters nor state change; the kernels read it, the
  // host does not (but see sgd.h).
  void step(double lr, const std::optional<torch::Tensor>& found_inf = {});
  // The learning rate of the configuration, which the schedule scales.
  virtual double base_lr() const = 0;
  // Releases the gradients; the next backward pass allocates new ones.
  void zero_grad();
  std::vector<torch::Tensor> parameters() const;
  // Whether step() skips parameters whose gradient is zero everywhere: no weight decay, no momentum, no count of their steps. It then
  // waits for the device once per step.
  void set_skip_zero_grads(bool skip) { skip_zero_grads_ = skip; }

  // Whether each step() needs a second forward and backward pass: first pass, ascend(), second pass, step() (see sam.cpp).
  virtual bool needs_second_pass() const { return false; }
  // Moves the parameters to the point of the second pass and releases the gradients; step() moves them back. Does not wait for the
  // device. Only if needs_second_pass().
  virtual void ascend();

  // The content of torch.optim's state_dict(), for exchange in both directions: "state" by the parameters' numbers, counted over the
  // groups, without parameters that had no update yet, and "param_groups" with the learning rate of the last step. Shares the state's
  // memory.
  state::Tree state() const;
  // Restores the state of the optimizer that wrote the tree, bit for bit, in the parameters' memory layout. Options come from the
  // configuration, so of the groups only the lists of parameters are read. Throws CheckpointError, with a part loaded, when these lists,
  // a shape or a dtype differ.
  void load_state(const state::View& view);

 protected:
  explicit Optimizer(std::vector<ParamGroup> groups) : groups_(std::move(groups)) {}

  // A group's parameters that have a gradient.
  struct Gradients {
    std::vector<size_t> indices;  // in the group
    std::vector<torch::Tensor> params;
    // In the parameter's memory layout, copied if needed. The fused kernels read both by address: the CPU's ignore strides, CUDA's
    // reject lists whose strides differ.
    std::vector<torch::Tensor> grads;

    void add(size_t index, torch::Tensor param, torch::Tensor grad) {
      indices.push_back(index);
      params.push_back(std::move(param));
      grads.push_back(std::move(grad));
    }
  };
  // The gradients of each group, in the order of groups_.
  std::vector<Gradients> gather() const;
  // Updates the parameters of groups_[group] in `gradients` (at least one); not recorded by autograd.
  virtual void update(size_t group, const Gradients& gradients, double lr, const std::optional<torch::Tensor>& found_inf) = 0;
  // Moves the parameters back to where they were before ascend().
  virtual void descend() {}

  // The tensors that torch.optim keeps for groups_[group].params[index], under its names; empty before the first update.
  virtual state::Dict param_state(size_t group, size_t index) const = 0;
  // Without `view`: the state before the first update.
  virtual void load_param_state(size_t group, size_t index, const std::optional<state::View>& view) = 0;
  // Adds the group's options as torch.optim names them, without learning rates.
  virtual void add_options(size_t group, state::Dict& options) const = 0;

  std::vector<ParamGroup> groups_;

 private:
  static void drop_zeros(std::vector<Gradients>& all);
  void check_groups(const state::View& param_groups) const;

  std::optional<double> last_lr_;
  bool skip_zero_grads_ = false;
};

// make() throws UsageError when options contradict each other.
using OptimizerRegistry = config::Registry<std::unique_ptr<Optimizer>, std::vector<ParamGroup>>;

const OptimizerRegistry& optimizer_registry();
// One of optimizer_registry(); `skip_zero_grads` as in set_skip_zero_grads().
std::unique_ptr<Optimizer> make_optimizer(const config::ComponentConfig& component, std::vector<ParamGroup> groups,
                                          bool skip_zero_grads = false);

// Whether any gradient has an element that is infinite or NaN, as a float32 scalar on the parameters' device: 1 if so, else 0: the
// `found_inf` of step(). Does not wait for the device.
torch::Tensor find_non_finite(const std::vector<torch::Tensor>& parameters);
// The 2-norm of all elements of all tensors (at least one), as a scalar tensor on their device; does not wait for it.
torch::Tensor total_norm(const std::vector<torch::Tensor>& tensors);
// Scales all gradients by min(1, max_norm / (norm + 1e-6)), like torch.nn.utils.clip_grad_norm_, without waiting for the device.
// Returns the 2-norm before scaling, as a scalar tensor on the device; 0 if there are no gradients.
torch::Tensor clip_grad_norm(const std::vector<torch::Tensor>& parameters, double max_norm);

}  // namespace trainer::optim
