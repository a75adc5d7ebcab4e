#include "engine/evaluator.h"

#include <numeric>

#include "amp/autocast.h"

namespace trainer::engine {

std::optional<metrics::Scores> evaluate(Parts& parts, const std::function<bool()>& should_stop) {
  const auto& placement = parts.placement;
  const auto& dataset = parts.validation.dataset();
  std::vector<int64_t> indices(static_cast<size_t>(dataset.size()));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  parts.validation.loader->start_epoch(0, std::move(indices));

  const bool has_classes = parts.loss->has_classes();
  constexpr int64_t kTop = 5;
  metrics::ScoreMeter meter(placement.device, has_classes, has_classes && parts.model->num_outputs() >= kTop);
  const torch::InferenceMode inference;
  parts.model->eval();
  bool stopped = should_stop();
  for (const input::Batch* batch = nullptr; !stopped && (batch = parts.validation.loader->next()) != nullptr; stopped = should_stop()) {
    const auto targets = batch->targets.to(placement.device, /*non_blocking=*/true);
    const amp::AutocastGuard autocast(placement.device.type(), placement.autocast_dtype);
    const auto outputs = parts.model->forward(batch->images.to(placement.device, /*non_blocking=*/true));
    meter.add((*parts.loss)(outputs, targets), outputs, targets, batch->size);
  }
  parts.model->train();
  return stopped ? std::nullopt : std::optional(meter.read());
}

}  // namespace trainer::engine
