#include "data/pipeline.h"

#include <ATen/Dispatch.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <variant>

#include "base/text.h"
#include "data/image_write.h"
#include "data/window_copy.h"
#include "trainer/error.h"

namespace trainer::data {
namespace {

using PixelTable = std::variant<std::vector<float>, std::vector<double>, std::vector<uint16_t>>;

PixelTable make_table(const std::vector<double>& mean, const std::vector<double>& std, torch::ScalarType dtype) {
  switch (dtype) {
    case torch::kFloat32:
      return ImageWriter<float>::make_table(mean, std);
    case torch::kFloat64:
      return ImageWriter<double>::make_table(mean, std);
    case torch::kBFloat16:
      return ImageWriter<uint16_t>::make_table(mean, std);
    default:
      TORCH_CHECK(false, "batches of type ", dtype, " are not supported");
  }
}

void check_normalize(const Normalize& normalize, int64_t channels, bool has_float_pixels) {
  const auto count = static_cast<size_t>(channels);
  if (normalize.mean.size() != count || normalize.std.size() != count) {
    throw UsageError(
        fmt::format("transform normalize: mean has {} and std {}, but the images have {}; give one value for "
                    "each channel",
                    counted(normalize.mean.size(), "value"), normalize.std.size(), counted(channels, "channel")));
  }
  // Results can be checked in advance only for 8-bit pixels, whose possible values are known.
  for (size_t c = 0; c < count && !has_float_pixels; ++c) {
    for (const float value : ImageWriter<float>::make_table({&normalize.mean[c], 1}, {&normalize.std[c], 1})) {
      if (!std::isfinite(value)) {
        throw UsageError(fmt::format(
            "transform normalize: mean {} and std {} result in values outside the range of float32; choose a mean and a std for "
            "pixel values between 0 and 1",
            normalize.mean[c], normalize.std[c]));
      }
    }
  }
}

bool is_erasing(const Transform& transform) { return std::holds_alternative<std::shared_ptr<const ErasingTransform>>(transform); }

// Throws if transform number `index`, whose name is given, is followed by a transform that must come before it.
void check_order(const std::vector<Transform>& transforms, size_t index, const std::string& name) {
  const bool is_last = std::all_of(transforms.begin() + static_cast<std::ptrdiff_t>(index) + 1, transforms.end(), is_erasing);
  if (is_last || std::holds_alternative<std::shared_ptr<const ImageTransform>>(transforms[index])) return;
  throw UsageError(
      fmt::format("transform {}: it is number {} of {} in its list, but only transforms that erase, such as random_erasing and cutout, may "
                  "follow it; move the other transforms before it",
                  name, index + 1, transforms.size()));
}

void check_samples(const ImageTransform& transform, const DatasetInfo& info, const std::string& name) {
  if (info.decoding.has_float_pixels() && !transform.fits_all_depths()) {
    throw UsageError(fmt::format("transform {}: it needs 8-bit images, but dataset.mode is {}; remove it{}", name,
                                 name_of(info.decoding.mode),
                                 name == "pad" || name == "letterbox" ? ", or set its fill to 0" : ", or set dataset.mode to rgb or grey"));
  }
  if (transform.uses_color() && info.shape[0] != 1 && info.shape[0] != 3) {
    throw UsageError(fmt::format("transform {}: the images have {}, but it can be applied only to images with 1 or 3 channels; remove it",
                                 name, counted(info.shape[0], "channel")));
  }
  if (info.has_masks && transform.moves_pixels()) {
    throw UsageError(fmt::format(
        "transform {}: it moves the pixels of an image, but not their labels in the mask; remove it, because the data set has masks",
        name));
  }
}

}  // namespace

struct Pipeline::State {
  DatasetInfo info;
  BatchLayout layout;
  std::vector<int64_t> output_shape;
  std::vector<std::shared_ptr<const ImageTransform>> image_transforms;
  std::vector<std::shared_ptr<const ErasingTransform>> erasing_transforms;
  std::vector<double> mean, std;  // parameters of normalize
  PixelTable table;
  std::vector<ChannelArithmetic> arithmetic;
  std::vector<TransformFinding> warnings;
  size_t num_planned = 0;  // number of transforms that plan_images() has accepted

  State(const std::vector<ComponentConfig>& components, const DatasetInfo& dataset_info, BatchLayout batch_layout)
      : info(dataset_info), layout(batch_layout), output_shape(dataset_info.shape) {
    plan(components);
  }
  explicit State(const DatasetInfo& dataset_info) : info(dataset_info), output_shape(dataset_info.shape) {}

  void plan(const std::vector<ComponentConfig>& components) {
    if (info.is_image) {
      plan_images(components);
    } else if (!components.empty()) {
      throw UsageError(
          fmt::format("transform {}: this data set does not contain images; leave its list of transforms empty", components.front().name));
    }
  }

  void plan_images(const std::vector<ComponentConfig>& components) {
    TORCH_CHECK(info.shape.size() == 3, "the images have ", info.shape.size(), " dimensions, not 3");
    const auto channels = info.shape[0];
    check_num_values(1, 1, "the data set");
    Frame frame = info.shape[1] == kAnySize ? Frame{1, 1, false} : Frame{static_cast<int>(info.shape[1]), static_cast<int>(info.shape[2])};
    mean.assign(static_cast<size_t>(channels), 0.0);
    std.assign(static_cast<size_t>(channels), 1.0);
    std::vector<Transform> transforms;
    for (const auto& component : components) transforms.push_back(transform_registry().make(component));
    for (size_t i = 0; i < transforms.size(); ++i) {
      const auto& name = components[i].name;
      check_order(transforms, i, name);
      if (const auto* normalize = std::get_if<Normalize>(&transforms[i])) {
        check_normalize(*normalize, channels, info.decoding.has_float_pixels());
        mean = normalize->mean;
        std = normalize->std;
      } else if (const auto* erasing = std::get_if<std::shared_ptr<const ErasingTransform>>(&transforms[i])) {
        erasing_transforms.push_back(*erasing);
      } else {
        image_transforms.push_back(std::get<std::shared_ptr<const ImageTransform>>(transforms[i]));
        check_samples(*image_transforms.back(), info, name);
        const auto before = frame;
        frame = image_transforms.back()->plan(before);
        check_num_values(frame.height, frame.width, "transform " + name);
        const auto warning = image_transforms.back()->warning(before);
        if (!warning.empty()) warnings.push_back({i, true, fmt::format("transform {}: {}", name, warning)});
      }
      ++num_planned;
    }
    if (!frame.is_exact) {
      throw UsageError(
          "the images have different sizes after this list, and a batch needs one size; add center_crop, random_crop or "
          "random_resized_crop, or give resize a size of [height, width]");
    }
    output_shape = {channels, frame.height, frame.width};
    table = make_table(mean, std, layout.dtype);
    if (layout.dtype != torch::kFloat64) arithmetic = exact_arithmetic(mean, std);
  }

  void check_num_values(int64_t height, int64_t width, const std::string& what) const {
    if (height > 0 && width > 0 && info.shape[0] <= kMostImageValues / (height * width)) return;
    throw UsageError(fmt::format("{}: its images of {} channels and {} x {} pixels have no or more than {} values; choose other sizes",
                                 what, info.shape[0], height, width, kMostImageValues));
  }

  void check_size(int channels, int height, int width) const {
    const auto fits = [](int64_t expected, int actual) { return expected == kAnySize || expected == actual; };
    TORCH_CHECK(channels == info.shape[0] && fits(info.shape[1], height) && fits(info.shape[2], width), "an image of ", channels,
                " channels and ", height, " x ", width, " pixels does not fit the shape of the data set, ",
                fmt::format("[{}] (-1: any size)", fmt::join(info.shape, ", ")));
  }

  static PictureMemory& memory_of_mask(PictureMemory& memory) {
    if (memory.mask == nullptr) memory.mask = std::make_unique<PictureMemory>();
    return *memory.mask;
  }

  void write_pixels(const Sample& sample, const EpochSeeds& seeds, const EpochSample& which, PictureMemory& memory, void* out,
                    uint8_t* mask_out) const {
    Picture picture = sample.encoded.empty() ? Picture(sample.image, memory) : Picture(sample.encoded, memory, info.decoding);
    check_size(picture.channels(), picture.height(), picture.width());
    std::optional<Picture> mask;
    if (info.has_masks) {
      mask.emplace(sample.target.mask, memory_of_mask(memory));
      check_mask_size(sample.target.mask, picture.height(), picture.width());
      picture.set_mask(*mask);
    }
    SampleRandom random(seeds, which);
    for (const auto& transform : image_transforms) transform->apply(picture, random);
    const auto write = [&]<class T>(const std::vector<T>& values) {
      const auto& view = picture.view();
      if (info.decoding.has_float_pixels() && !sample.encoded.empty()) {
        ImageWriter<T>::write_values(view, mean, std, layout.channels_last, memory.window, static_cast<T*>(out));
      } else {
        ImageWriter<T>::write(view, values, arithmetic, layout.channels_last, memory.rows, static_cast<T*>(out));
      }
      for (const auto& transform : erasing_transforms) {
        const auto box = transform->draw_box(view.window_height, view.window_width, random);
        ImageWriter<T>::erase(box, view.channels, view.window_height, view.window_width, layout.channels_last, static_cast<T*>(out));
      }
    };
    std::visit(write, table);
    if (mask_out == nullptr) return;
    const auto& labels = mask->view();
    copy_rows(labels, 0, labels.window_height, PixelOrder::kPlanar, mask_out);
  }

  void write_values(const Sample& sample, void* out) const {
    const size_t count = sample.values.size();
    TORCH_CHECK(static_cast<int64_t>(count) == c10::multiply_integers(info.shape), "the sample has ", count,
                " values, but the data set has ", fmt::format("{}", fmt::join(info.shape, " x ")));
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

std::vector<TransformFinding> check_transforms(const std::vector<ComponentConfig>& components, const DatasetInfo& info) {
  Pipeline::State state(info);
  std::string refusal;
  try {
    state.plan(components);
  } catch (const UsageError& error) {
    refusal = error.what();
  }
  auto findings = std::move(state.warnings);
  if (!refusal.empty()) {
    const bool is_of_one = state.num_planned < components.size();
    findings.push_back({is_of_one ? std::optional(state.num_planned) : std::nullopt, false, refusal});
  }
  return findings;
}

Pipeline::Pipeline(const std::vector<ComponentConfig>& components, const DatasetInfo& info, BatchLayout layout)
    : state_(std::make_shared<const State>(components, info, layout)) {}

const std::vector<int64_t>& Pipeline::output_shape() const { return state_->output_shape; }
const BatchLayout& Pipeline::layout() const { return state_->layout; }

void Pipeline::write(const Sample& sample, const EpochSeeds& seeds, const EpochSample& which, PictureMemory& memory, void* out,
                     uint8_t* mask) const {
  if (state_->info.is_image) {
    state_->write_pixels(sample, seeds, which, memory, out, mask);
  } else {
    state_->write_values(sample, out);
  }
}

}  // namespace trainer::data
