#include "engine/non_finite_search.h"

#include <algorithm>

#include "nn/layer_observer.h"

namespace trainer::engine {
namespace {

Observation observe(std::string what, const torch::Tensor& tensor) {
  const torch::NoGradGuard no_grad;
  const auto is_finite = tensor.isfinite();
  const auto sizes = at::where(is_finite, tensor.abs(), 0);
  return {.what = std::move(what),
          .shape = tensor.sizes().vec(),
          .largest = tensor.numel() == 0 ? 0 : sizes.max().item<double>(),
          .num_non_finite = tensor.numel() - is_finite.sum().item<int64_t>()};
}

void add_if_non_finite(std::vector<Observation>& observations, std::string what, const torch::Tensor& tensor) {
  auto observation = observe(std::move(what), tensor);
  if (observation.num_non_finite > 0) observations.push_back(std::move(observation));
}

void observe_pass(Parts& parts, TrainStep& train_step, const torch::Tensor& images, const torch::Tensor& targets,
                  const MicroStep& micro_step, std::vector<Observation>& observations) {
  const auto modules = parts.model->named_modules();
  const auto add_output = [&](const torch::nn::Module& layer, const torch::Tensor& output) {
    for (const auto& module : modules) {
      if (module.value().get() == &layer) observations.push_back(observe("the output of " + module.key(), output));
    }
  };
  task::Task::Pass pass;
  {
    const nn::LayerObserver observer(add_output);
    pass = train_step.forward(images, targets, micro_step);
  }
  observations.push_back(observe("the loss", pass.loss));
  train_step.weighted(pass.loss, images.size(0), micro_step).backward();
  // The backward pass runs from the last layer to the first.
  const auto parameters = parts.model->named_parameters();
  for (size_t i = parameters.size(); i-- > 0;) {
    const auto& gradient = parameters[i].value().grad();
    if (gradient.defined()) add_if_non_finite(observations, "the gradient of " + parameters[i].key(), gradient);
  }
}

// Apart from the backward pass, which has to leave the gradients of this rank to be observed.
void sum_gradients(const optim::Optimizer& optimizer, const distributed::ProcessGroup& world) {
  for (const auto& parameter : optimizer.parameters()) {
    auto& gradient = parameter.mutable_grad();
    gradient = gradient.defined() ? gradient.contiguous() : torch::zeros_like(parameter, torch::MemoryFormat::Contiguous);
    world.all_reduce(gradient);
  }
}

}  // namespace

std::vector<Observation> observe_micro_step(Parts& parts, TrainStep& train_step, const data::Batch& batch, const MicroStep& micro_step) {
  const auto buffers = parts.model->buffers();
  std::vector<torch::Tensor> saved;
  for (const auto& buffer : buffers) saved.push_back(buffer.clone());
  const auto [images, targets] = train_step.prepare(batch, micro_step);
  auto& optimizer = *parts.optimizer;
  optimizer.zero_grad();
  std::vector<Observation> observations;
  for (const auto& parameter : parts.model->named_parameters()) {
    add_if_non_finite(observations, "the parameter " + parameter.key(), parameter.value());
  }
  observations.push_back(observe("the images", images));
  run_passes(optimizer, *parts.model, [&, &images = images, &targets = targets](int, bool is_last) {
    observe_pass(parts, train_step, images, targets, micro_step, observations);
    if (!is_last && optimizer.needs_first_pass_summed()) sum_gradients(optimizer, *parts.ranks.world);
  });
  // Moves the parameters back, and changes nothing else.
  if (optimizer.needs_second_pass()) optimizer.step(0, torch::ones({}, torch::dtype(torch::kFloat32).device(images.device())));
  optimizer.zero_grad();
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(saved[i]);
  return observations;
}

const Observation* first_non_finite(const std::vector<Observation>& observations) {
  const auto found = std::ranges::find_if(observations, [](const Observation& observation) { return observation.num_non_finite > 0; });
  return found == observations.end() ? nullptr : &*found;
}

}  // namespace trainer::engine
