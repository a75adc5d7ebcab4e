#include "commands/first_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "commands/image_grid.h"
#include "data/pipeline.h"
#include "reporting/evaluation.h"
#include "session/random_streams.h"

namespace trainer::commands {
namespace {

struct FirstBatch {
  torch::Tensor images;   // float32, [N, channels, height, width], normalised
  torch::Tensor targets;  // classes, int64 [N], or their parts in a mixed image, [N, classes]
};

// The most that make a picture of about 1000 pixels.
int64_t num_shown(const std::vector<int64_t>& shape, int64_t batch_size) {
  constexpr int64_t kSide = 1000;
  constexpr int64_t kSmallestCell = 100;
  const auto columns = std::clamp<int64_t>(kSide / std::max(shape[1], shape[2]), 2, kSide / kSmallestCell - 2);
  return std::min(columns * columns, batch_size);
}

data::Normalize normalisation_of(const config::Experiment& experiment) {
  const auto& transforms = experiment.dataset.train_transforms;
  const auto found = std::ranges::find(transforms, "normalize", &ComponentConfig::name);
  return found == transforms.end() ? data::Normalize() : dynamic_cast<const data::Normalize&>(*found->options);
}

FirstBatch read(const config::Experiment& experiment, const data::Dataset& dataset, const data::SampleList& samples) {
  const data::Pipeline pipeline(experiment.dataset.train_transforms, dataset.info(), {torch::kFloat32, /*channels_last=*/false});
  const data::EpochSeeds seeds(session::augmentation_seed(experiment), /*number=*/0);
  const auto count = static_cast<int64_t>(samples.size());
  auto sizes = pipeline.output_shape();
  sizes.insert(sizes.begin(), count);
  FirstBatch batch{torch::zeros(sizes), torch::zeros({count}, torch::kInt64)};
  data::Scratch scratch;
  data::PictureMemory memory;
  for (int64_t i = 0; i < count; ++i) {
    const auto which = samples[static_cast<size_t>(i)];
    try {
      const auto sample = dataset.read(which.index, scratch);
      pipeline.write(sample, seeds, which, memory, batch.images[i].data_ptr<float>());
      if (data::refusal_of_label(sample.target, dataset.info()).empty()) batch.targets[i] = sample.target.label;
    } catch (const std::exception&) {
      // The training reports it, or leaves it out.
    }
  }
  return batch;
}

torch::Tensor without_normalisation(const torch::Tensor& images, const data::Normalize& normalize) {
  if (normalize.mean.empty()) return images.clamp(0, 1);
  const auto of_channels = [](const std::vector<double>& values) { return torch::tensor(values, torch::kFloat32).view({1, -1, 1, 1}); };
  return (images * of_channels(normalize.std) + of_channels(normalize.mean)).clamp(0, 1);
}

std::string caption_of(const torch::Tensor& target, const std::vector<std::string>& class_names) {
  if (target.dim() == 0) return drawable_class_name(class_names, target.item<int64_t>());
  const auto [parts, classes] = target.topk(std::min<int64_t>(2, target.numel()));
  std::string caption;
  for (int64_t i = 0; i < parts.numel(); ++i) {
    const double part = parts[i].item<double>();
    if (part < 0.005) continue;
    caption += fmt::format("{}{} {:.2f}", caption.empty() ? "" : " ", drawable_class_name(class_names, classes[i].item<int64_t>()), part);
  }
  return caption;
}

}  // namespace

std::optional<drawing::RgbImage> draw_first_batch(const config::Experiment& experiment, engine::Parts& parts) {
  const auto& info = parts.train.info;
  if (!info.is_image) return std::nullopt;
  const auto part = engine::rest_of_epoch(parts.plan, /*epoch=*/0);
  const int rank = parts.ranks.world->rank();
  const auto share = parts.share_of(rank, part, /*step=*/0);
  const int64_t batch_size = share.batch_sizes.front();
  const int64_t count = num_shown(parts.train.pipeline->output_shape(), batch_size);
  // Any image of the batch may be mixed into those that are shown.
  auto batch = read(experiment, parts.train.dataset(), share.samples.slice(0, parts.batch_mixer ? batch_size : count));
  if (parts.batch_mixer && batch_size > 0) {
    const auto micro_step = engine::micro_steps_of(parts.plan, part, rank, /*step=*/0).front();
    const auto mixed = parts.batch_mixer->apply(batch.images, batch.targets, micro_step.step, micro_step.stream);
    batch = {mixed.images.slice(0, 0, count), mixed.targets.slice(0, 0, count)};
  }
  const auto images = without_normalisation(batch.images, normalisation_of(experiment)).permute({0, 2, 3, 1}).contiguous();
  return draw_image_grid(parts.train.pipeline->output_shape(), count, [&](int64_t i, float* out) {
    const auto image = images[i];
    std::memcpy(out, image.const_data_ptr<float>(), image.nbytes());
    return info.has_labels() ? caption_of(batch.targets[i], info.class_names) : "";
  });
}

}  // namespace trainer::commands
