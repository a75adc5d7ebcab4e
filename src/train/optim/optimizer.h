#pragma once
// Creation of optimizers (trainer/optim.h), and operations on all gradients before a step.

#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/optim.h"
#include "trainer/options.h"

namespace torch::nn {
class Module;
}

namespace trainer::optim {

// Divides the parameters that require gradients into groups: first the parameters that no item of `sections` names, then for each item
// those that it names but no earlier item. Unless `decay_norm_and_bias` is set or the item has its own weight decay, each of these groups
// is followed by a separate one without weight decay for its parameters with fewer than two dimensions (norm weights, biases). With a
// `layer_decay` below 1, each group is divided further by layers, in their order, and the learning rate of a layer is multiplied by
// layer_decay for each layer after it, as in timm's param_groups_layer_decay. A layer is a direct child of the network, of its lists or of
// its plain torch::nn::Modules; a normalisation belongs to the layer before it. Parameters of the network itself, such as a class token,
// belong to the first layer. Groups without parameters are omitted.
std::vector<ParamGroup> group_parameters(const torch::nn::Module& model, bool decay_norm_and_bias,
                                         const std::vector<ParameterGroupOptions>& sections = {}, double layer_decay = 1);

// Makes an optimizer of optimizer_registry(); `skip_zero_grads` as in set_skip_zero_grads().
std::unique_ptr<Optimizer> make_optimizer(const ComponentConfig& component, std::vector<ParamGroup> groups, bool skip_zero_grads = false);

// Add the options of a group of parameters of torch.optim's SGD, Adam, AdamW (`decoupled`) and RMSprop, without the learning rate.
void add_sgd_options(state::Dict& group, double momentum, double dampening, double weight_decay, bool nesterov);
void add_adam_options(state::Dict& group, double beta1, double beta2, double eps, double weight_decay, bool amsgrad, bool decoupled);
void add_rmsprop_options(state::Dict& group, double momentum, double alpha, double eps, bool centered, double weight_decay);

// The gradients of those parameters that have one.
std::vector<torch::Tensor> gradients_of(const std::vector<torch::Tensor>& parameters);
// Returns 1 if any gradient has an infinite or NaN element, else 0, as a float32 scalar on the parameters' device: the `found_inf` of
// step(). Does not wait for the device.
torch::Tensor find_non_finite(const std::vector<torch::Tensor>& parameters);
// Runs `change`, which modifies `tensors`. If `found_inf` is given and not 0, the tensors keep their values. Does not wait for a GPU.
void change_unless(const std::optional<torch::Tensor>& found_inf, const std::vector<torch::Tensor>& tensors,
                   const std::function<void()>& change);
// The 2-norm of all elements of all tensors (at least one), as a scalar tensor on their device. Does not wait for the device.
torch::Tensor total_norm(const std::vector<torch::Tensor>& tensors);
// Scales all gradients by min(1, max_norm / (norm + 1e-6)), like torch.nn.utils.clip_grad_norm_, without waiting for the device.
// Returns the 2-norm before scaling, as a scalar tensor on the device; 0 if there are no gradients.
torch::Tensor clip_grad_norm(const std::vector<torch::Tensor>& parameters, double max_norm);

}  // namespace trainer::optim
