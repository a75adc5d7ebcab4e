#include <fmt/format.h>

#include "data/transforms/resize_and_crop.h"
#include "export/interface.h"
#include "trainer/error.h"
#include "trainer/transform.h"

namespace trainer::exported {

Preprocessing read_preprocessing(const std::vector<ComponentConfig>& transforms, size_t num_given, const data::DatasetInfo& info) {
  Preprocessing result;
  result.channels = info.shape.at(0);
  const auto num_channels = static_cast<size_t>(result.channels);
  result.mean.assign(num_channels, 0);
  result.std.assign(num_channels, 1);
  data::Frame least{1, 1, false};
  for (size_t i = 0; i < transforms.size(); ++i) {
    const auto transform = data::transform_registry().make(transforms[i]);
    const auto* image_transform = std::get_if<std::shared_ptr<const data::ImageTransform>>(&transform);
    const auto* image = image_transform == nullptr ? nullptr : image_transform->get();
    if (const auto* normalize = std::get_if<data::Normalize>(&transform)) {
      result.mean.assign(normalize->mean.begin(), normalize->mean.end());
      result.std.assign(normalize->std.begin(), normalize->std.end());
    } else if (const auto* resize = dynamic_cast<const data::Resize*>(image)) {
      using Fit = ResizeStep::Fit;
      const auto& size = resize->size;
      const auto& longest = resize->longest;
      result.steps.emplace_back(
          longest ? ResizeStep{Fit::kLonger, *longest, *longest, resize->interpolation}
                  : ResizeStep{size.is_one_number() ? Fit::kShorter : Fit::kExact, size.height(), size.width(), resize->interpolation});
    } else if (const auto* letterbox = dynamic_cast<const data::Letterbox*>(image)) {
      const auto& size = letterbox->size();
      result.steps.emplace_back(ResizeStep{ResizeStep::Fit::kInside, size.height(), size.width(), letterbox->interpolation()});
      result.steps.emplace_back(PadStep{PadStep::Frame{size.height(), size.width()}, letterbox->fill()});
    } else if (const auto* pad = dynamic_cast<const data::Pad*>(image); pad != nullptr && pad->mode() == data::Padding::kZero) {
      const auto [left, top, right, bottom] = pad->margins();
      result.steps.emplace_back(PadStep{PadStep::Margins{left, top, right, bottom}, pad->fill()});
    } else if (const auto* crop = dynamic_cast<const data::CenterCrop*>(image)) {
      const auto& size = crop->size;
      result.steps.emplace_back(CropStep{size.height(), size.width(), size.height() > least.height || size.width() > least.width});
    } else {
      throw UsageError(fmt::format(
          "dataset.validation_transforms[{}]: {} cannot be part of an exported network; use only resize, letterbox, pad with "
          "padding_mode constant, center_crop and normalize, or add --input tensor to export the network without its transforms",
          i + num_given - transforms.size(), transforms[i].name));
    }
    if (image != nullptr) least = image->plan(least);
  }
  return result;
}

}  // namespace trainer::exported
