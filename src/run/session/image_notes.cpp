#include "run/session/image_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <string_view>

#include "base/text.h"
#include "data/image_file.h"

namespace trainer::session {
namespace {

// The bytes that are stored of it.
std::string_view content_of(const data::Sample& sample) {
  const auto& image = sample.image;
  const auto bytes = sample.encoded.empty()
                         ? std::span(image.pixels, static_cast<size_t>(image.channels) * static_cast<size_t>(image.height) *
                                                       static_cast<size_t>(image.width))
                         : sample.encoded;
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string are(int64_t count, int64_t num_all) { return fmt::format("{} of {}", count, counted(num_all, "image")); }

}  // namespace

void ImageNotes::add(int64_t index, const data::Sample& sample) {
  Image image{.content = std::hash<std::string_view>()(content_of(sample)),
              .index = index,
              .label = static_cast<int32_t>(sample.target.label),
              .part = static_cast<uint8_t>(parts_.size() - 1)};
  if (!sample.encoded.empty()) {
    const auto traits = data::find_traits(sample.encoded);
    image.is_turned = traits.orientation > 1 && traits.orientation <= 8;
    image.has_16_bits = traits.bits == 16;
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
  add_traits(sentences);
  add_duplicates(sentences);
  return sentences;
}

void ImageNotes::add_traits(std::vector<std::string>& sentences) const {
  const auto num_all = static_cast<int64_t>(images_.size());
  const auto add = [&](bool Image::*property, std::string_view text) {
    const auto count = std::ranges::count(images_, true, property);
    if (count == 0) return;
    sentences.push_back(
        fmt::format("{} {}; the first is {}", are(count, num_all), text, describe(*std::ranges::find(images_, true, property))));
  };
  add(&Image::is_turned,
      "have an EXIF orientation, which is ignored as by torchvision, so that they are used as the camera has stored them and not upright "
      "(turn the pixels with another program, such as `mogrify -auto-orient`)");
  add(&Image::has_16_bits,
      "have 16 bits per channel and are read as Pillow reads them, which makes grey values above 255 white (convert them to 8 bits)");
}

void ImageNotes::add_duplicates(std::vector<std::string>& sentences) const {
  auto images = images_;
  // Stable: those of the same content stay in the order of their parts.
  std::ranges::stable_sort(images, {}, &Image::content);
  int64_t num_in_classes = 0, num_in_parts = 0;
  using Pair = std::pair<Image, Image>;
  std::optional<Pair> in_classes, in_parts;
  const auto comes_first = [](const Image& image, const std::optional<Pair>& pair) {
    return !pair || std::pair(image.part, image.index) < std::pair(pair->first.part, pair->first.index);
  };
  for (auto begin = images.begin(); begin != images.end();) {
    const auto end = std::find_if(begin, images.end(), [&](const Image& image) { return image.content != begin->content; });
    const auto other_class = std::find_if(begin, end, [&](const Image& image) { return image.label != begin->label; });
    if (other_class != end) {
      num_in_classes += end - begin;
      if (comes_first(*begin, in_classes)) in_classes = {*begin, *other_class};
    }
    const auto other_part = std::find_if(begin, end, [&](const Image& image) { return image.part != begin->part; });
    if (other_part != end) {
      num_in_parts += end - other_part;
      if (comes_first(*begin, in_parts)) in_parts = {*begin, *other_part};
    }
    begin = end;
  }
  const auto num_all = static_cast<int64_t>(images.size());
  if (in_classes) {
    sentences.push_back(fmt::format("{} are in several classes with the same content; the first is {}, the same as {}",
                                    are(num_in_classes, num_all), describe(in_classes->first), describe(in_classes->second)));
  }
  if (in_parts) {
    sentences.push_back(fmt::format(
        "{} are for validation and have the content of training images, so that the validation is too good; the first is {}, the "
        "same as {}",
        are(num_in_parts, num_all), describe(in_parts->second), describe(in_parts->first)));
  }
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
      // The training will report it.
    }
  }
  for (const auto& sentence : notes.sentences()) {
    const auto of_some = fmt::format("; these are evenly spaced ones of {}, `trainer data check` reads all", training.size());
    logger.warn("{}{}", sentence, training.size() > kMostRead ? of_some : "");
  }
}

}  // namespace trainer::session
