#include "input/transforms.h"

#include <ATen/Dispatch.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <variant>

#include "base/error.h"
#include "base/plural.h"
#include "base/random.h"
#include "input/image_write.h"

namespace trainer::input {
namespace {

// Keeps windows far from the limits of int.
constexpr double kMaxPixels = 32768;

// The properties of every image at one position in the list of transforms.
struct Frame {
  int height = 0;
  int width = 0;
  bool cut = false;  // the image may be only a part of the stored one
};

// The random numbers of a sample in its epoch, and those that it has in all epochs alike.
class SampleRandom : public CounterRandom {
 public:
  // `seeds` must outlive it.
  SampleRandom(const EpochSeeds& seeds, int64_t index)
      : CounterRandom(seeds.of_epoch, static_cast<uint64_t>(index)), seeds_(seeds), index_(index) {}

  int64_t epoch() const { return seeds_.epoch; }
  CounterRandom& of_all_epochs() {
    if (!of_all_epochs_) of_all_epochs_.emplace(seeds_.of_all_epochs, static_cast<uint64_t>(index_));
    return *of_all_epochs_;
  }

 private:
  const EpochSeeds& seeds_;
  int64_t index_;
  std::optional<CounterRandom> of_all_epochs_;  // made when a transform asks for it, because few do
};

// The keys of a transform that moves the window, and the transform itself. Several threads call apply() concurrently.
class ImageTransform : public config::Options {
 public:
  // The frame after this transform. Throws UsageError when it cannot be applied to `frame`.
  virtual Frame plan(Frame frame) const = 0;
  // What is hardly meant so, though it can be applied to `frame`; empty: nothing.
  virtual std::string warning(const Frame& /*frame*/) const { return ""; }
  virtual void apply(ImageView& image, SampleRandom& random) const = 0;
};

class RandomCrop final : public ImageTransform {
 public:
  void describe(config::KeyTable& keys) override {
    keys.add("size", size_,
             {.min = 1, .max = kMaxPixels, .unit = "pixels", .doc = "Height and width of what is cut out.", .required = true});
    keys.add("padding", padding_, {.min = 0, .max = kMaxPixels, .unit = "pixels", .doc = "Added on each side before cutting."});
    keys.add_choice("padding_mode", padding_mode_, {{"zero", Padding::kZero}, {"reflect", Padding::kReflect}},
                    {.doc = "Black, or the image mirrored at its edge (which is not repeated)."});
  }

  Frame plan(Frame frame) const override {
    if (padding_ > 0 && frame.cut) {
      throw UsageError(
          fmt::format("transform random_crop: padding {} follows another random_crop, which has cut off the surroundings; "
                      "set the padding of the first random_crop",
                      padding_));
    }
    if (padding_mode_ == Padding::kReflect && padding_ >= std::min(frame.height, frame.width)) {
      throw UsageError(
          fmt::format("transform random_crop: padding {} with padding_mode reflect must be smaller than the image, which is "
                      "{} x {} pixels",
                      padding_, frame.height, frame.width));
    }
    if (size_ > std::min(frame.height, frame.width) + 2 * padding_) {
      throw UsageError(
          fmt::format("transform random_crop: size {} does not fit into the image of {} x {} pixels with padding {}; "
                      "choose a smaller size or more padding",
                      size_, frame.height, frame.width, padding_));
    }
    return {static_cast<int>(size_), static_cast<int>(size_), true};
  }

  std::string warning(const Frame& frame) const override {
    if (padding_ < std::min(frame.height, frame.width)) return "";
    return fmt::format("padding {} is not smaller than the image, which is {} x {} pixels; a crop may show little or nothing of it",
                       padding_, frame.height, frame.width);
  }

  void apply(ImageView& image, SampleRandom& random) const override {
    const int size = static_cast<int>(size_);
    const int top = draw_offset(image.window_height, random);
    const int left = draw_offset(image.window_width, random);
    image.top += top;
    image.left += image.mirrored ? image.window_width - size - left : left;
    image.window_height = size;
    image.window_width = size;
    if (padding_ > 0) image.padding = padding_mode_;
  }

 private:
  // The start of the crop, relative to an unpadded image of that extent.
  int draw_offset(int extent, CounterRandom& random) const {
    const int64_t num_places = extent + 2 * padding_ - size_ + 1;
    return static_cast<int>(random.next_below(static_cast<uint32_t>(num_places)) - padding_);
  }

  int64_t size_ = 0;
  int64_t padding_ = 0;
  Padding padding_mode_ = Padding::kZero;
};

class RandomHorizontalFlip final : public ImageTransform {
 public:
  void describe(config::KeyTable& keys) override {
    keys.add("p", p_, {.min = 0, .max = 1, .doc = "Probability that an image is mirrored."});
    keys.add("alternate", alternate_,
             {.doc = "Mirror each image in every second epoch, so that any two successive epochs show it once as it is and once mirrored; "
                     "p is the probability that it is mirrored in the first epoch."});
  }

  Frame plan(Frame frame) const override { return frame; }

  void apply(ImageView& image, SampleRandom& random) const override {
    const bool mirrors = alternate_ ? random.of_all_epochs().next_bool(p_) != (random.epoch() % 2 == 1) : random.next_bool(p_);
    if (mirrors) image.mirrored = !image.mirrored;
  }

 private:
  double p_ = 0.5;
  bool alternate_ = false;
};

// Not an ImageTransform, because it is applied while pixels are written.
struct Normalize final : config::Options {
  std::vector<double> mean;
  std::vector<double> std;

  void describe(config::KeyTable& keys) override {
    keys.add("mean", mean, {.doc = "One for each channel, of pixel values from 0 to 1.", .required = true});
    keys.add("std", std, {.min = 0, .min_excluded = true, .doc = "One for each channel.", .required = true});
    const auto warn_above_one = [&keys](const char* key, const std::vector<double>& values) {
      keys.warn(key, [&values]() -> std::string {
        if (std::ranges::none_of(values, [](double value) { return value > 1; })) return "";
        return fmt::format("[{}] cannot be that of pixel values from 0 to 1; divide values for 0 to 255 by 255", fmt::join(values, ", "));
      });
    };
    warn_above_one("mean", mean);
    warn_above_one("std", std);
  }
};

using Transform = std::variant<std::shared_ptr<const ImageTransform>, Normalize>;
using TransformRegistry = config::Registry<Transform>;

const TransformRegistry& transforms() {
  static const TransformRegistry all = [] {
    TransformRegistry registry("transform");
    registry.add<RandomCrop>("random_crop", "Cuts a square out of the image, with optional padding, at a random place.",
                             [](const auto& crop) { return std::make_shared<RandomCrop>(crop); });
    registry.add<RandomHorizontalFlip>("random_horizontal_flip", "Mirrors the image, left for right, with probability p.",
                                       [](const auto& flip) { return std::make_shared<RandomHorizontalFlip>(flip); });
    registry.add<Normalize>("normalize", "Subtracts a mean from each channel and divides by a standard deviation; the last transform.",
                            [](const auto& normalize) { return normalize; });
    return registry;
  }();
  return all;
}

using PixelTable = std::variant<std::vector<float>, std::vector<double>, std::vector<uint16_t>>;

PixelTable make_table(const std::vector<double>& mean, const std::vector<double>& std, torch::ScalarType dtype) {
  switch (dtype) {
    case torch::kFloat32:
      return make_pixel_table<float>(mean, std);
    case torch::kFloat64:
      return make_pixel_table<double>(mean, std);
    case torch::kBFloat16:
      return make_pixel_table<uint16_t>(mean, std);
    default:
      TORCH_CHECK(false, "batches cannot be made of ", dtype);
  }
}

void check_normalize(const Normalize& normalize, int64_t channels) {
  const auto count = static_cast<size_t>(channels);
  if (normalize.mean.size() != count || normalize.std.size() != count) {
    throw UsageError(
        fmt::format("transform normalize: mean has {} and std {}, but the images have {}; give one value for "
                    "each channel",
                    counted(normalize.mean.size(), "value"), normalize.std.size(), counted(channels, "channel")));
  }
  for (size_t c = 0; c < count; ++c) {
    for (const float value : make_pixel_table<float>({&normalize.mean[c], 1}, {&normalize.std[c], 1})) {
      if (!std::isfinite(value)) {
        throw UsageError(
            fmt::format("transform normalize: mean {} and std {} make values that float32 cannot hold; pixel values lie between "
                        "0 and 1",
                        normalize.mean[c], normalize.std[c]));
      }
    }
  }
}

}  // namespace

const config::RegistryBase& transform_registry() { return transforms(); }

struct Pipeline::State {
  DatasetInfo info;
  BatchLayout layout;
  std::vector<int64_t> output_shape;
  std::vector<std::shared_ptr<const ImageTransform>> image_transforms;
  PixelTable table;
  std::vector<ChannelArithmetic> arithmetic;
  std::vector<TransformFinding> warnings;
  size_t num_planned = 0;  // transforms that can be applied

  State(const std::vector<config::ComponentConfig>& components, const DatasetInfo& dataset_info, BatchLayout batch_layout)
      : info(dataset_info), layout(batch_layout), output_shape(dataset_info.shape) {
    plan(components);
  }
  explicit State(const DatasetInfo& dataset_info) : info(dataset_info), output_shape(dataset_info.shape) {}

  void plan(const std::vector<config::ComponentConfig>& components) {
    if (info.is_image) {
      plan_images(components);
    } else if (!components.empty()) {
      throw UsageError(
          fmt::format("transform {}: this data set holds no images; leave its list of transforms empty", components.front().name));
    }
  }

  void plan_images(const std::vector<config::ComponentConfig>& components) {
    TORCH_CHECK(info.shape.size() == 3, "images of ", info.shape.size(), " dimensions");
    const auto channels = info.shape[0];
    Frame frame{static_cast<int>(info.shape[1]), static_cast<int>(info.shape[2]), false};
    std::vector<double> mean(static_cast<size_t>(channels), 0.0);
    std::vector<double> std(static_cast<size_t>(channels), 1.0);
    for (size_t i = 0; i < components.size(); ++i) {
      const Transform transform = transforms().make(components[i]);
      if (const auto* normalize = std::get_if<Normalize>(&transform)) {
        if (i + 1 != components.size()) {
          throw UsageError(
              fmt::format("transform normalize: it is number {} of {} in its list; it must be the last", i + 1, components.size()));
        }
        check_normalize(*normalize, channels);
        mean = normalize->mean;
        std = normalize->std;
      } else {
        image_transforms.push_back(std::get<std::shared_ptr<const ImageTransform>>(transform));
        const auto before = frame;
        frame = image_transforms.back()->plan(before);
        const auto warning = image_transforms.back()->warning(before);
        if (!warning.empty()) warnings.push_back({i, true, fmt::format("transform {}: {}", components[i].name, warning)});
      }
      ++num_planned;
    }
    output_shape = {channels, frame.height, frame.width};
    table = make_table(mean, std, layout.dtype);
    if (layout.dtype == torch::kFloat32) arithmetic = exact_arithmetic(mean, std);
  }

  void write_pixels(const Sample& sample, const EpochSeeds& seeds, int64_t index, void* out) const {
    ImageView image = sample.image;
    TORCH_CHECK(image == ImageView::whole(image.pixels, static_cast<int>(info.shape[0]), static_cast<int>(info.shape[1]),
                                          static_cast<int>(info.shape[2])),
                "the image has ", image.channels, " x ", image.height, " x ", image.width, " pixels, the data set ",
                fmt::format("{}", fmt::join(info.shape, " x ")));
    SampleRandom random(seeds, index);
    for (const auto& transform : image_transforms) transform->apply(image, random);
    const auto write = [&]<class T>(const std::vector<T>& values) {
      write_image<T>(image, values, arithmetic, layout.channels_last, static_cast<T*>(out));
    };
    std::visit(write, table);
  }

  void write_values(const Sample& sample, void* out) const {
    const size_t count = sample.values.size();
    TORCH_CHECK(static_cast<int64_t>(count) == c10::multiply_integers(info.shape), "the sample has ", count, " values, the data set ",
                fmt::format("{}", fmt::join(info.shape, " x ")));
    const size_t channels = layout.channels_last && info.shape.size() == 3 ? static_cast<size_t>(info.shape[0]) : 1;
    const size_t plane = count / channels;
    AT_DISPATCH_FLOATING_TYPES_AND(torch::kBFloat16, layout.dtype, "write_values", [&] {
      auto* to = static_cast<scalar_t*>(out);
      for (size_t c = 0; c < channels; ++c) {
        for (size_t i = 0; i < plane; ++i) to[i * channels + c] = static_cast<scalar_t>(sample.values[c * plane + i]);
      }
    });
  }
};

std::vector<TransformFinding> check_transforms(const std::vector<config::ComponentConfig>& components, const DatasetInfo& info) {
  Pipeline::State state(info);
  std::string refusal;
  try {
    state.plan(components);
  } catch (const UsageError& error) {
    refusal = error.what();
  }
  auto findings = std::move(state.warnings);
  if (!refusal.empty()) findings.push_back({state.num_planned, false, refusal});
  return findings;
}

EpochSeeds::EpochSeeds(uint64_t seed, int64_t number)
    : epoch(number),
      of_epoch(mix_seed(seed, static_cast<uint64_t>(number))),
      of_all_epochs(mix_seed(seed, std::numeric_limits<uint64_t>::max())) {}

Pipeline::Pipeline(const std::vector<config::ComponentConfig>& components, const DatasetInfo& info, BatchLayout layout)
    : state_(std::make_shared<const State>(components, info, layout)) {}

const std::vector<int64_t>& Pipeline::output_shape() const { return state_->output_shape; }
const BatchLayout& Pipeline::layout() const { return state_->layout; }

void Pipeline::write(const Sample& sample, const EpochSeeds& seeds, int64_t index, void* out) const {
  if (state_->info.is_image) {
    state_->write_pixels(sample, seeds, index, out);
  } else {
    state_->write_values(sample, out);
  }
}

}  // namespace trainer::input
