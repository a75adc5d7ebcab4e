#include "engine/evaluator.h"

#include <algorithm>

#include "amp/autocast.h"
#include "engine/copy_event.h"

namespace trainer::engine {
namespace {

std::optional<task::Measurement> evaluate_model(Parts& parts, config::TestTimeAugmentation tta, const std::function<bool()>& should_stop) {
  const auto& placement = parts.placement;
  const auto& world = *parts.ranks.world;
  const int64_t num_samples = parts.validation.num_samples;
  const int64_t batch_size = parts.validation.batches->batch_size();
  const int64_t num_batches = (num_samples + batch_size - 1) / batch_size;
  parts.validation.batches->start_epoch(0, [&](int rank) {
    RankShare share;
    for (int64_t number = rank; number < num_batches; number += world.size()) {
      const int64_t first = number * batch_size;
      const int64_t end = std::min(first + batch_size, num_samples);
      for (int64_t i = first; i < end; ++i) share.samples.indices.push_back(i);
      share.batch_sizes.push_back(end - first);
    }
    return share;
  });

  parts.ranks.activity->enter(distributed::Phase::kValidation);
  const auto meter = parts.task->make_validation_meter(placement.device, parts.validation.info.num_classes, num_batches);
  parts.data_parallel->sync_buffers();
  const torch::InferenceMode inference;
  parts.model->eval();
  bool stopped = should_stop();
  for (int64_t first = 0; !stopped && first < num_batches; first += world.size(), stopped = should_stop()) {
    parts.ranks.activity->enter(distributed::Phase::kValidation);
    const auto* batch = parts.validation.batches->next();
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
