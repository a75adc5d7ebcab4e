// The network of a run: model, loss and optimizer, and whether they fit the data.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "datasets/registry.h"
#include "models/registry.h"
#include "nn/loss.h"
#include "nn/sync_batch_norm.h"
#include "session/build.h"
#include "session/random_streams.h"

namespace trainer::session {
namespace {

std::shared_ptr<models::Model> make_model(const config::Experiment& experiment, const at::Generator& dropout_generator,
                                          const engine::Ranks& ranks) {
  const auto seed = mix_seed(static_cast<uint64_t>(experiment.seed), kInitStream);
  return models::model_registry().make(
      experiment.model.component,
      {.init_generator = at::make_generator<at::CPUGeneratorImpl>(seed),
       .dropout_generator = dropout_generator,
       .norm = experiment.distributed.sync_batch_norm ? nn::sync_batch_norm(ranks.batch_norm) : nn::local_batch_norm()});
}

void place_model(models::Model& model, const device::Placement& placement) {
  model.to(placement.device, placement.dtype);
  for (auto& parameter : model.parameters()) {
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(placement.memory_format));
  }
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("{}", fmt::join(shape, "x")); }

// Throws one UsageError that lists what does not fit together.
void check_fit(const config::Experiment& experiment, const models::Model& model, const task::Task& task) {
  const auto info = datasets::dataset_registry().make(experiment.dataset.component).info;
  const auto& data_name = experiment.dataset.component.name;
  auto problems = task.problems({.loss = experiment.loss.component.name,
                                 .dataset = data_name,
                                 .num_classes = info.num_classes,
                                 .monitor = experiment.checkpoint.monitor});
  const int64_t num_targets = info.num_classes > 0 ? info.num_classes : info.num_targets;
  if (model.num_outputs() != num_targets) {
    problems.push_back(fmt::format("model: {} has {} outputs, but {} has {} {}", experiment.model.component.name, model.num_outputs(),
                                   data_name, num_targets, info.num_classes > 0 ? "classes" : "targets"));
  }
  const auto check_transforms = [&](const char* key, const std::vector<config::ComponentConfig>& transforms) {
    try {
      const auto shape = input::Pipeline(transforms, info, {}).output_shape();
      const bool fits =
          std::ranges::equal(model.input_shape(), shape, [](int64_t want, int64_t have) { return want == -1 || want == have; });
      if (!fits) {
        problems.push_back(fmt::format("model: {} takes samples of shape {}, but {} has {} after {}", experiment.model.component.name,
                                       shape_text(model.input_shape()), data_name, shape_text(shape), key));
      }
    } catch (const UsageError& error) {
      problems.push_back(fmt::format("{}: {}", key, error.what()));
    }
  };
  check_transforms("dataset.train_transforms", experiment.dataset.train_transforms);
  check_transforms("dataset.validation_transforms", experiment.dataset.validation_transforms);
  if (!problems.empty()) throw UsageError(join(problems, "\n"));
}

}  // namespace

engine::Network build_network(const config::Experiment& experiment, const device::Placement& placement, const engine::Ranks& ranks) {
  engine::Network network;
  network.placement = placement;
  network.dropout_generator = at::globalContext().defaultGenerator(placement.device).clone();
  network.model = make_model(experiment, network.dropout_generator, ranks);
  network.task = task::make_task(nn::loss_registry().make(experiment.loss.component));
  check_fit(experiment, *network.model, *network.task);
  if (!experiment.runtime.channels_last.value && !network.model->prefers_channels_last()) {
    network.placement.memory_format = torch::MemoryFormat::Contiguous;
  }
  place_model(*network.model, network.placement);
  network.optimizer = optim::make_optimizer(experiment.optimizer.component,
                                            optim::group_parameters(*network.model, experiment.optimizer.decay_norm_and_bias),
                                            experiment.optimizer.skip_zero_grads);
  if (network.optimizer->needs_second_pass() && experiment.training.accumulation_steps > 1) {
    throw UsageError(
        fmt::format("optimizer.name: {} goes over each batch twice, so it cannot join {} micro-steps; set "
                    "training.accumulation_steps: 1",
                    experiment.optimizer.component.name, experiment.training.accumulation_steps));
  }
  if (network.placement.autocast_dtype == torch::kFloat16) network.grad_scaler.emplace(experiment.amp, placement.device);
  return network;
}

}  // namespace trainer::session
