#include "engine/evaluator.h"

#include <algorithm>

#include "amp/autocast.h"
#include "engine/copy_event.h"

namespace trainer::engine {
namespace {

std::optional<task::Measurement> evaluate_model(Parts& parts, config::TestTimeAugmentation tta, const std::function<bool()>& should_stop) {
  const auto& placement = parts.placement;
  const auto& dataset = parts.validation.dataset();
  const auto& world = *parts.ranks.world;
  const int64_t batch_size = parts.validation.loader->batch_size();
  const int64_t num_batches = (dataset.size() + batch_size - 1) / batch_size;
  std::vector<int64_t> indices;
  for (int64_t number = world.rank(); number < num_batches; number += world.size()) {
    for (int64_t i = number * batch_size; i < std::min((number + 1) * batch_size, dataset.size()); ++i) indices.push_back(i);
  }
  parts.validation.loader->start_epoch(0, std::move(indices));

  parts.ranks.activity->enter(distributed::Phase::kValidation);
  const auto meter = parts.task->make_validation_meter(placement.device, dataset.info().num_classes, num_batches);
  parts.data_parallel->sync_buffers();
  const torch::InferenceMode inference;
  parts.model->eval();
  bool stopped = should_stop();
  for (int64_t first = 0; !stopped && first < num_batches; first += world.size(), stopped = should_stop()) {
    parts.ranks.activity->enter(distributed::Phase::kValidation);
    const auto* batch = parts.validation.loader->next();
    if (batch == nullptr) continue;
    const auto [images, targets] = copy_to_device(*batch, placement.device);
    const amp::AutocastGuard autocast(placement.device.type(), placement.autocast_dtype);
    const auto pass = parts.task->evaluate(*parts.model, images, targets, tta);
    meter->add(first + world.rank(), pass.loss, pass.outputs, targets, batch->size);
  }
  parts.model->train();
  return stopped ? std::nullopt : std::optional(meter->read(world));
}

}  // namespace

std::optional<Evaluation> evaluate(Parts& parts, config::TestTimeAugmentation tta, const std::function<bool()>& should_stop) {
  const auto model = evaluate_model(parts, tta, should_stop);
  if (!model) return std::nullopt;
  if (!parts.ema) return Evaluation{.model = *model, .ema = {}};
  const optim::AveragedParameters averaged(*parts.ema);
  const auto ema = evaluate_model(parts, tta, should_stop);
  if (!ema) return std::nullopt;
  return Evaluation{.model = *model, .ema = ema};
}

}  // namespace trainer::engine
