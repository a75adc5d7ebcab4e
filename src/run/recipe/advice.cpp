#include "run/recipe/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <string_view>

#include "base/text.h"
#include "data/image_file.h"
#include "nn/batch_norm.h"
#include "nn/layers.h"
#include "trainer/error.h"

namespace trainer::recipe {
namespace {

struct SingleImage {
  bool is_last = false;  // whether only the last batch of an epoch has one image
  int rank = 0;
};

// Finds a batch of the first epoch for which batch normalisation would compute its statistics from a single image. `joined`: whether the
// statistics are computed over all ranks.
std::optional<SingleImage> find_single_image(const engine::Plan& plan, bool joined) {
  const auto part = engine::rest_of_epoch(plan, 0);
  const int64_t last = part.num_batches - 1;
  // The smallest batches of an epoch: the last micro-step of a whole step, and the last of the epoch.
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

// The name of a batch normalisation that is not frozen and whose input has one pixel for this sample; empty if there is none.
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

void check_batch_norm_counts(const Recipe& recipe, engine::Network& network, const engine::Plan& plan,
                             const std::vector<int64_t>& sample_shape) {
  const auto single = find_single_image(plan, recipe.options.sync_batch_norm);
  if (!single) return;
  const auto& schedule = recipe.options.plan.size_schedule;
  auto shape = schedule.empty() ? sample_shape : engine::scaled_shape(sample_shape, schedule.front().size);
  shape.insert(shape.begin(), 1);
  const auto& placement = network.placement;
  const auto name = norm_of_one_pixel(*network.model, torch::zeros(shape, torch::dtype(placement.dtype).device(placement.device)));
  if (name.empty()) return;
  const bool is_global = recipe.options.plan.global_batch_size.has_value();
  const std::string size_key = is_global ? "dataloader.global_batch_size" : "dataloader.batch_size";
  const bool is_of_rank = plan.world_size > 1 && !recipe.options.sync_batch_norm;
  throw UsageError(fmt::format(
      "{}: the {} has only one image{}, so the batch normalisation {} would get one value per channel, whose variance is undefined; {}",
      recipe.place(single->is_last ? "dataloader.drop_last" : size_key), single->is_last ? "last batch of an epoch" : "batch",
      is_of_rank ? fmt::format(" on rank {}", single->rank) : "", name,
      single->is_last ? "set dataloader.drop_last: true, or another " + size_key : "set a larger " + size_key + ", or use larger images"));
}

std::string advice_on_data(const engine::Interval& epoch, int64_t number, const config::Experiment& experiment) {
  constexpr double kLargeShare = 0.1;
  // After shorter waits, no advice is given, because in a short epoch, the wait for the first batches dominates.
  constexpr double kLongSeconds = 5;
  if (epoch.waited_seconds < kLongSeconds || epoch.waited_seconds < kLargeShare * epoch.seconds) return "";
  const auto& dataset = experiment.dataset;
  std::vector<std::string> ways{fmt::format("raise dataloader.num_workers (now {})", experiment.dataloader.num_workers.value.value_or(1))};
  if (dataset.component.name != "lmdb" && dataset.component.name != "synthetic")
    ways.emplace_back("store the images as pixels with `trainer data pack --raw`");
  if (dataset.stage_to.empty() && dataset.component.name != "synthetic")
    ways.emplace_back("copy the files to a disk of this host with dataset.stage_to");
  return fmt::format("training waited for data for {:.0f} % of epoch {}; {}", 100 * epoch.waited_seconds / epoch.seconds, number + 1,
                     join(ways, ", or "));
}

void ImageNotes::add(int64_t index, const data::Sample& sample) {
  Image image{.index = index, .label = static_cast<int32_t>(sample.target.label), .part = static_cast<uint8_t>(parts_.size() - 1)};
  if (!sample.encoded.empty()) {
    const auto traits = data::find_traits(sample.encoded);
    image.is_turned = traits.orientation > 1 && traits.orientation <= 8;
    image.has_16_bits = traits.bits == 16 && !parts_.back().dataset->info().decoding.has_float_pixels();
    image.has_pages = traits.pages > 1;
    image.are_channels_first = traits.are_channels_first;
  }
  const std::lock_guard lock(mutex_);
  images_.push_back(image);
}

std::string ImageNotes::describe(const Image& image) const {
  const auto& [title, dataset] = parts_[image.part];
  const auto what = fmt::format("{} {}", title, dataset->describe(image.index));
  if (!dataset->info().has_labels()) return what;
  const auto& names = dataset->info().class_names;
  const auto label = static_cast<size_t>(image.label);
  const auto class_name = label < names.size() ? names[label] : fmt::format("class {}", label);
  return fmt::format("{} ({})", what, class_name);
}

std::vector<std::string> ImageNotes::sentences() {
  std::ranges::sort(images_, {}, [](const Image& image) { return std::pair(image.part, image.index); });
  std::vector<std::string> sentences;
  const auto add = [&](bool Image::*property, std::string_view text) {
    const auto count = std::ranges::count(images_, true, property);
    if (count == 0) return;
    sentences.push_back(fmt::format("{} of {} {}; the first is {}", count, counted(images_.size(), "image"), text,
                                    describe(*std::ranges::find(images_, true, property))));
  };
  const bool is_upright = !parts_.empty() && parts_.front().dataset->info().decoding.is_turned_upright;
  add(&Image::is_turned, is_upright
                             ? "have an EXIF orientation and are turned upright, unlike in torchvision's ImageFolder "
                               "(set dataset.exif_orientation: ignore to use them as stored by the camera)"
                             : "have an EXIF orientation, which is ignored as in torchvision, so they are used as stored by the camera and "
                               "may not be upright (dataset.exif_orientation: apply, for image_folder and csv, turns them upright)");
  add(&Image::has_16_bits,
      "have 16 bits per channel, of which only the upper 8 are used, as in Pillow (dataset.mode: grey16 keeps all bits of grey images, "
      "and raw those of TIFF files)");
  add(&Image::has_pages, "are TIFF files of several images, of which only the first is used; save each image as a file of its own");
  add(&Image::are_channels_first,
      "are arrays that look like [channels, height, width], but are read as [height, width, channels]; save them with "
      "numpy.moveaxis(array, 0, -1)");
  return sentences;
}

void warn_of_images(const data::Dataset& training, Logger& logger) {
  constexpr int64_t kMostRead = 64;
  if (!training.info().is_image) return;
  ImageNotes notes;
  notes.begin_part("training", training);
  data::Scratch scratch;
  for (const auto index : data::evenly_spaced(training.size(), kMostRead)) {
    try {
      const auto sample = training.read(index, scratch);
      if (sample.encoded.empty()) return;
      notes.add(index, sample);
    } catch (const std::exception&) {
      // Training will report this error.
    }
  }
  for (const auto& sentence : notes.sentences()) {
    const auto of_some = fmt::format("; only {} of {} images were checked; `trainer data check` reads all", kMostRead, training.size());
    logger.warn("{}{}", sentence, training.size() > kMostRead ? of_some : "");
  }
}

}  // namespace trainer::recipe
