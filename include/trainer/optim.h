#pragma once
// The base class of optimizers, whose state has torch.optim's names; and the state of LibTorch's own optimizers in Python's format, for
// checkpoints that torch.optim can load.

#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/component.h"
#include "trainer/error.h"
#include "trainer/options.h"
#include "trainer/state.h"

namespace torch::optim {
class Optimizer;
}

namespace trainer::optim {

// Parameters that share their learning rate and weight decay. All parameters of an optimizer must be on one device, of one floating type,
// and dense and non-overlapping in memory (for example contiguous or channels_last).
struct ParamGroup {
  std::vector<torch::Tensor> params;
  bool decay = true;                        // false: weight_decay is 0
  double lr_factor = 1;                     // multiplies the learning rate of step()
  std::optional<double> weight_decay = {};  // instead of the optimizer's, even if `decay` is false
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One update from each parameter's .grad with this learning rate times each group's factor; parameters without a gradient do not change.
  // If `found_inf` (amp::GradScaler's: a float32 scalar on the parameters' device) is 1, neither parameters nor state change. Only kernels
  // read `found_inf`, so the host does not wait for the device, except in the first update of SGD with dampening.
  void step(double lr, const std::optional<torch::Tensor>& found_inf = {});
  // The configured learning rate, which the schedule scales.
  virtual double base_lr() const = 0;
  // Resets the gradients to undefined, so that the next backward writes new ones.
  void zero_grad();
  std::vector<torch::Tensor> parameters() const;
  // Whether step() skips a parameter whose gradient is zero everywhere: no weight decay, no momentum, no count of the step.
  // If set, step() waits for the device once.
  void set_skip_zero_grads(bool skip) { skip_zero_grads_ = skip; }

  // Whether step() can be recorded in a CUDA graph.
  bool is_recordable() const { return takes_lr_tensors() && !skip_zero_grads_; }
  // From now on step() ignores its `lr` and uses the learning rates that the last set_lr() has written to the device, rounded to float32.
  void use_lr_tensors();
  // Like the `lr` of step(): multiplied by each group's factor.
  void set_lr(double lr);

  size_t num_groups() const { return groups_.size(); }
  double lr_factor(size_t group) const { return groups_[group].lr_factor; }

  // Whether each step() needs a second forward and backward pass: first pass, perturb_parameters(), second pass, step() (see sam.cpp).
  virtual bool needs_second_pass() const { return false; }
  // Whether the gradients must be summed over the ranks before perturb_parameters().
  virtual bool needs_first_pass_summed() const { return false; }
  // Moves the parameters to the point of the second pass and resets the gradients; step() restores the parameters. Does not wait for the
  // device. To be called only if needs_second_pass().
  virtual void perturb_parameters();

  // In the format of torch.optim's state_dict(), so that Python can load it: "state" by the number of the parameter, counted over the
  // groups, without parameters that had no update yet, and "param_groups". `lr`: the learning rate of the next step, which torch's
  // schedulers store in the groups; `scheduler_options`: other learning rates that they store in each group (LrSchedule::group_factors).
  // Each of these rates is multiplied by the group's factor. Shares the state's memory.
  state::Tree state(double lr, const state::Dict& scheduler_options) const;
  // Restores the state bit for bit, in the parameters' memory layout. Options come from the configuration, so only the groups' lists of
  // parameters are checked. Throws CheckpointError if one of these lists, a shape or a dtype differs; some state may have been loaded by
  // then.
  void load_state(const state::View& view);

 protected:
  // `state_names`: torch.optim's names of the tensors that the optimizer keeps for each parameter.
  explicit Optimizer(std::vector<ParamGroup> groups, std::vector<std::string> state_names = {});

  // The parameters of a group that have a gradient.
  struct Gradients {
    std::vector<size_t> indices;  // in the group
    std::vector<torch::Tensor> params;
    // In the parameters' memory layout, copied if necessary, because the fused kernels access parameters and gradients as flat memory: the
    // CPU kernels ignore strides, and the CUDA kernels reject lists with different strides.
    std::vector<torch::Tensor> grads;
    std::vector<bool> are_new;                       // whether this is the first update of the parameter; true without state_names
    std::vector<std::vector<torch::Tensor>> states;  // for each name, the tensors of the parameters

    Gradients select(const std::function<bool(size_t position)>& is_selected) const;
    // All tensors that an update changes.
    std::vector<torch::Tensor> changed() const;
  };
  // One entry per group, in the order of groups_; without states.
  std::vector<Gradients> gather() const;
  // Updates groups_[group]; `gradients` has at least one parameter. Not recorded by autograd. `lr`: of the group.
  virtual void update(size_t group, const Gradients& gradients, double lr, const std::optional<torch::Tensor>& found_inf) = 0;
  // Whether update() gets the learning rate from with_lr(), never waits for the device, and keeps its state in the same tensors after the
  // first updates.
  virtual bool takes_lr_tensors() const { return false; }
  // Calls `update` with the learning rate of the group: `lr`, or after use_lr_tensors() a float32 scalar on the device.
  template <typename Update>
  void with_lr(size_t group, double lr, const Update& update) const {
    if (lr_tensors_.empty()) {
      update(lr);
    } else {
      update(lr_tensors_[group]);
    }
  }
  // Restores the parameters to their values before perturb_parameters().
  virtual void restore_parameters() {}

  // The state of a parameter before its first update, in the order of the names: zeros. Undefined tensors are not used with these options.
  virtual std::vector<torch::Tensor> first_state(const torch::Tensor& param) const;
  // The state of groups_[group].params[index]; empty before the first update.
  virtual state::Dict param_state(size_t group, size_t index) const;
  // Without a view, resets the state to its value before the first update.
  virtual void load_param_state(size_t group, size_t index, const std::optional<state::View>& view);
  // Adds the group's options under torch.optim's names, without learning rates.
  virtual void add_options(size_t group, state::Dict& options) const = 0;

  // The weight decay of groups_[group] if the optimizer's is `configured`.
  double weight_decay_of(size_t group, double configured) const;

  std::vector<ParamGroup> groups_;
  // For each parameter of each group, the tensors in the order of the names; none before the first update.
  std::vector<std::vector<std::vector<torch::Tensor>>> states_;

 private:
  static void drop_zeros(std::vector<Gradients>& all);
  void add_states(size_t group, Gradients& gradients);

  std::vector<std::string> state_names_;
  bool skip_zero_grads_ = false;
  std::vector<torch::Tensor> lr_tensors_;  // like groups_, or empty
};

using OptimizerRegistry = Registry<std::unique_ptr<Optimizer>, std::vector<ParamGroup>>;
OptimizerRegistry& optimizer_registry();
// The learning-rate schedules of experiment files.
const RegistryBase& lr_scheduler_registry();

// A schedule of lr_scheduler_registry() for own training loops, after a warm-up: the factor for the learning rate of update number `step`,
// from 0. It depends on nothing else, so that a checkpoint needs only the step. Throws UsageError for reduce_on_plateau, which depends on
// validations, and OptionError for a warm-up that is not shorter than the training.
std::function<double(int64_t step)> make_lr_factor(const ComponentConfig& schedule, int64_t total_steps, int64_t steps_per_epoch,
                                                   const WarmupOptions& warmup = {});

// torch.optim's state_dict() of a torch::optim::SGD, Adam, AdamW, RMSprop or Adagrad. Shares the memory of its tensors. Throws UsageError
// for an optimizer of another class.
state::Tree state_of(torch::optim::Optimizer& optimizer);
// Restores the result of state_of() or of Python's state_dict(): the state of each parameter, bit for bit, and the learning rate of each
// group. Other options do not change. Throws CheckpointError if the groups, their numbering, a shape or a dtype differ; some state may have
// been loaded by then.
void load_state_of(torch::optim::Optimizer& optimizer, const state::View& view);

// LibTorch's optimizers for a Trainer and for register_optimizer(): `make` returns a new one of a class of state_of() for the parameters of
// one group, and must obey the group's `decay` and `weight_decay`. Its learning rate is base_lr() and must be the same for all groups. With
// float16, each step waits for the device. Throws UsageError for another class.
std::unique_ptr<Optimizer> of_libtorch(std::vector<ParamGroup> groups,
                                       std::function<std::unique_ptr<torch::optim::Optimizer>(const ParamGroup& group)> make);

}  // namespace trainer::optim
