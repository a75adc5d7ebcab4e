#include "session/batch_norm_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "nn/batch_norm.h"
#include "nn/layer_observer.h"
#include "trainer/error.h"

namespace trainer::session {
namespace {

struct SingleImage {
  bool is_last = false;  // in the last batch of an epoch alone
  int rank = 0;
};

// A batch of the first epoch in which the statistics are those of one image. `joined`: of all ranks together.
std::optional<SingleImage> find_single_image(const engine::Plan& plan, bool joined) {
  const auto part = engine::rest_of_epoch(plan, 0);
  const int64_t last = part.num_batches - 1;
  // Of the micro-steps of a whole step the last one is the smallest.
  for (const int64_t batch : {std::min(plan.accumulation_steps, part.num_batches) - 1, last}) {
    int64_t num_joined = 0;
    for (int rank = 0; rank < plan.world_size; ++rank) {
      const int64_t size =
          engine::samples_before_batch(plan, part, rank, batch + 1) - engine::samples_before_batch(plan, part, rank, batch);
      num_joined += size;
      if (!joined && size == 1) return SingleImage{.is_last = batch == last && last > 0, .rank = rank};
    }
    if (num_joined == 1) return SingleImage{.is_last = batch == last && last > 0};
  }
  return std::nullopt;
}

// The name of a batch normalisation that sees one pixel of this sample; empty if there is none, or if all of them are frozen.
std::string norm_of_one_pixel(models::Model& model, const torch::Tensor& sample) {
  std::map<const torch::nn::Module*, std::string> names;
  for (const auto& module : model.named_modules("", /*include_self=*/false)) {
    const auto* norm = module.value()->as<nn::BatchNorm2d>();
    if (norm != nullptr && norm->is_training()) names[norm] = module.key();
  }
  std::string found;
  const nn::LayerObserver observer([&](const torch::nn::Module& layer, const torch::Tensor& output) {
    const auto name = names.find(&layer);
    if (found.empty() && name != names.end() && output.numel() == output.size(1)) found = name->second;
  });
  const torch::NoGradGuard no_grad;
  model.eval();
  model.forward(sample);
  model.train();
  return found;
}

}  // namespace

void check_batch_norm_counts(const config::Experiment& experiment, engine::Network& network, const engine::Plan& plan,
                             const std::vector<int64_t>& sample_shape) {
  const auto single = find_single_image(plan, experiment.distributed.sync_batch_norm);
  if (!single) return;
  auto shape = sample_shape;
  shape.insert(shape.begin(), 1);
  const auto& placement = network.placement;
  const auto name = norm_of_one_pixel(*network.model, torch::zeros(shape, torch::dtype(placement.dtype).device(placement.device)));
  if (name.empty()) return;
  const bool is_global = experiment.dataloader.global_batch_size.has_value();
  const std::string size_key = is_global ? "dataloader.global_batch_size" : "dataloader.batch_size";
  const bool is_of_rank = plan.world_size > 1 && !experiment.distributed.sync_batch_norm;
  throw UsageError(fmt::format(
      "{}: the {} is one image{}, and the batch normalisation {} cannot train on it, because it has one value per channel there; {}",
      experiment.place_of(single->is_last ? "dataloader.drop_last" : size_key), single->is_last ? "last batch of an epoch" : "batch",
      is_of_rank ? fmt::format(" on rank {}", single->rank) : "", name,
      single->is_last ? "set dataloader.drop_last: true, or another " + size_key : "set a larger " + size_key + ", or use larger images"));
}

}  // namespace trainer::session
