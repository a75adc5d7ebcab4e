#include "data/transforms/transform.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace trainer::data {

void describe_size(KeyTable& keys, Size& size, const std::string& doc, bool is_required) {
  auto& values = size.values;
  keys.add("size", values, {.min = 1, .max = kMaxPixels, .unit = "pixels", .doc = doc, .required = is_required, .may_be_one = true});
  keys.refuse("size", [&values, is_required]() -> std::string {
    if (values.size() == 1 || values.size() == 2 || (!is_required && values.empty())) return "";
    return fmt::format("has {}; set one number, or [height, width]", counted(values.size(), "number"));
  });
}

std::string to_string(const Size& size) {
  return size.is_one_number() ? fmt::format("{}", size.height()) : fmt::format("{} x {}", size.height(), size.width());
}

bool is_random(const ComponentConfig& component) {
  const auto transform = transform_registry().make(component);
  const auto* of_images = std::get_if<std::shared_ptr<const ImageTransform>>(&transform);
  if (of_images == nullptr) return !std::holds_alternative<Normalize>(transform);
  // Larger than usual crops, which must fit into the image.
  constexpr int kSide = 1024;
  const std::vector<uint8_t> pixels(size_t{3} * kSide * kSide);
  PictureMemory memory;
  Picture picture(ImageView::whole(pixels.data(), 3, kSide, kSide), memory);
  const EpochSeeds seeds(0, 0);
  SampleRandom random(seeds, {});
  (*of_images)->apply(picture, random);
  return random.is_used();
}

std::string to_string(const Frame& frame) {
  return fmt::format("{}{} x {} pixels", frame.is_exact ? "" : "at least ", frame.height, frame.width);
}

void require_range(KeyTable& keys, const std::string& key, const std::vector<double>& values, bool may_be_number) {
  keys.refuse(key, [&values, may_be_number]() -> std::string {
    const bool is_range = values.size() == 2 && values.front() <= values.back();
    if (is_range || (may_be_number && values.size() == 1 && values.front() >= 0)) return "";
    return fmt::format("[{}] is not a range; set {}[minimum, maximum]", fmt::join(values, ", "),
                       may_be_number ? "one number that is not negative, or " : "");
  });
}

namespace {

// The largest box in the middle of the image whose ratio is allowed.
Box central_box(int height, int width, Range ratio) {
  Box box{0, 0, height, width};
  const double image_ratio = static_cast<double>(width) / height;
  if (image_ratio < ratio.least) {
    box.height = rounded(width / ratio.least);
  } else if (image_ratio > ratio.greatest) {
    box.width = rounded(height * ratio.greatest);
  }
  // The image may be so narrow that a side would be rounded to 0.
  box.height = std::clamp(box.height, 1, height);
  box.width = std::clamp(box.width, 1, width);
  box.top = (height - box.height) / 2;
  box.left = (width - box.width) / 2;
  return box;
}

}  // namespace

int rounded(double value) { return static_cast<int>(std::nearbyint(value)); }

std::optional<Box> draw_box_in(int height, int width, Range scale, Range ratio, bool is_crop, SampleRandom& random) {
  const double area = static_cast<double>(height) * width;
  for (int i = 0; i < 10; ++i) {
    const double box_area = area * random.next_between(scale.least, scale.greatest);
    const double box_ratio = std::exp(random.next_between(std::log(ratio.least), std::log(ratio.greatest)));
    int box_width = rounded(std::sqrt(box_area * box_ratio));
    int box_height = rounded(std::sqrt(box_area / box_ratio));
    if (!is_crop) std::swap(box_width, box_height);
    const int less = is_crop ? 0 : 1;
    if (box_width > width - less || box_height > height - less || (is_crop && std::min(box_width, box_height) < 1)) continue;
    const auto top = random.next_below(static_cast<uint32_t>(height - box_height + 1));
    const auto left = random.next_below(static_cast<uint32_t>(width - box_width + 1));
    return Box{static_cast<int>(top), static_cast<int>(left), box_height, box_width};
  }
  return std::nullopt;
}

Box draw_resized_crop_box(int height, int width, Range scale, Range ratio, SampleRandom& random) {
  const auto box = draw_box_in(height, width, scale, ratio, /*is_crop=*/true, random);
  return box ? *box : central_box(height, width, ratio);
}

}  // namespace trainer::data
