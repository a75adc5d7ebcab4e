#include "train/engine/evaluator.h"

#include <algorithm>

#include "train/engine/shared_batches.h"
#include "trainer/amp.h"

namespace trainer::engine {

std::optional<task::Measurement> evaluate_model(Network& network, const Ranks& ranks, DataSource& source, task::TestTimeAugmentation tta,
                                                const std::function<bool()>& should_stop) {
  const auto& placement = network.placement;
  const auto& world = *ranks.world;
  const int64_t num_samples = source.samples.size();
  const int64_t batch_size = source.batches->batch_size();
  const int64_t num_batches = (num_samples + batch_size - 1) / batch_size;
  const auto end_of = [&](int64_t number) { return std::min((number + 1) * batch_size, num_samples); };
  source.batches->start_epoch(0, [&](int rank) {
    RankShare share;
    for (int64_t number = rank; number < num_batches; number += world.size()) {
      const int64_t first = number * batch_size;
      for (int64_t i = first; i < end_of(number); ++i) share.samples.indices.push_back(i);
      share.batch_sizes.push_back(end_of(number) - first);
    }
    return share;
  });

  ranks.activity->enter(distributed::Phase::kValidation);
  const auto meter = network.task->make_validation_meter(placement.device, source.samples.info().num_classes, num_batches);
  const torch::InferenceMode inference;
  network.model->eval();
  bool stopped = should_stop();
  for (int64_t first = 0; !stopped && first < num_batches; first += world.size(), stopped = should_stop()) {
    ranks.activity->enter(distributed::Phase::kValidation);
    const auto* batch = source.batches->next();
    if (batch == nullptr) continue;
    const auto [images, targets] = copy_to_device(*batch, placement.device);
    const amp::AutocastGuard autocast(placement.device.type(), placement.autocast_dtype);
    const auto pass = network.task->evaluate(*network.model, images, targets, tta);
    task::EvaluatedBatch evaluated{.number = first + world.rank(), .size = batch->size};
    const int64_t first_sample = evaluated.number * batch_size;
    if (first_sample + batch->size == end_of(evaluated.number)) evaluated.first_sample = first_sample;
    meter->add(evaluated, pass.loss, pass.outputs, targets);
  }
  network.model->train();
  return stopped ? std::nullopt : std::optional(meter->read(world));
}

std::optional<Evaluation> evaluate(Parts& parts, task::TestTimeAugmentation tta, const std::function<bool()>& should_stop) {
  const auto evaluate_parameters = [&] {
    parts.ranks.activity->enter(distributed::Phase::kValidation);
    parts.data_parallel->sync_buffers();
    return evaluate_model(parts, parts.ranks, *parts.validation, tta, should_stop);
  };
  const auto model = evaluate_parameters();
  if (!model) return std::nullopt;
  if (!parts.ema) return Evaluation{.model = *model, .ema = {}};
  const optim::AveragedParameters averaged(*parts.ema);
  const auto ema = evaluate_parameters();
  if (!ema) return std::nullopt;
  return Evaluation{.model = *model, .ema = ema};
}

}  // namespace trainer::engine
