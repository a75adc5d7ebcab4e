#include "datasets/image_files.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <optional>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/image_file.h"
#include "datasets/files.h"

namespace trainer::datasets {
namespace {

class ImageFiles : public data::Dataset {
 public:
  ImageFiles(data::DatasetInfo info, ImageList images) : info_(std::move(info)), images_(std::move(images)) {}

  const data::DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return images_.size(); }
  data::Sample read(int64_t index, data::Scratch& scratch) const override {
    return {.encoded = read_bytes(images_.path(index), scratch.bytes), .target = target(index, scratch)};
  }
  data::Target target(int64_t index, data::Scratch&) const override {
    return {.label = info_.has_labels() ? images_.label(index) : 0, .values = images_.target_values(index)};
  }
  data::SampleOrigin origin(int64_t index) const override {
    return {images_.path(index), std::string(images_.name(index)), images_.group(index), index};
  }
  std::optional<int64_t> num_bytes(int64_t index) const override {
    const auto path = images_.path(index);
    const FileAccess access("examining", path);
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 ? status.st_size : 0;
  }

 private:
  data::DatasetInfo info_;
  ImageList images_;
};

}  // namespace

void ImageList::add_path(std::string_view path) {
  offsets_.push_back(paths_.size());
  paths_.append(path).push_back('\0');
}

void ImageList::add(std::string_view path, int64_t label) {
  add_path(path);
  labels_.push_back(static_cast<int32_t>(label));
}

void ImageList::add(std::string_view path, std::span<const double> target_values) {
  add_path(path);
  values_.insert(values_.end(), target_values.begin(), target_values.end());
}

void ImageList::set_group(std::string_view group) {
  groups_.resize(offsets_.size());
  groups_.back() = group;
}

std::span<const double> ImageList::target_values(int64_t index) const {
  const auto count = values_.size() / offsets_.size();
  return std::span(values_).subspan(static_cast<size_t>(index) * count, count);
}

int64_t ImageList::num_classes_with_images() const {
  return static_cast<int64_t>(std::unordered_set<int32_t>(labels_.begin(), labels_.end()).size());
}

void ImageFileOptions::describe(KeyTable& keys) {
  using data::ImageMode;
  Choices<ImageMode> modes = {{"auto", ImageMode::kAuto}};
  modes.insert(modes.end(), data::kImageModes.begin(), data::kImageModes.end());
  keys.add_choice("mode", mode, modes,
                  {.doc = "The channels that are read. rgb: 8 bits of red, green and blue; grey: 8 bits of grey; grey16: 16 bits of grey; "
                          "raw: all channels of TIFF and .npy files, with 8 or 16 bits or as floating-point numbers; auto: grey16 or raw "
                          "if the first readable image needs it, else rgb."});
  keys.add_choice(
      "exif_orientation", is_turned_upright, {{"apply", true}, {"ignore", false}},
      {.doc = "apply: turn images upright by their EXIF orientation; ignore: leave them as stored, except TIFF files, like torchvision's "
              "ImageFolder."});
  for (const char* key : {"mode", "exif_orientation"}) keys.set_facts(key, {.is_fixed_on_resume = true, .affects_features = true});
}

data::ImageDecoding decoding_of(const ImageFileOptions& options, std::span<const std::filesystem::path> first_images) {
  using data::ImageMode;
  const bool is_auto = options.mode == ImageMode::kAuto;
  const data::ImageDecoding initial{.mode = is_auto ? ImageMode::kRgb : options.mode, .is_turned_upright = options.is_turned_upright};
  if (!options.need_images()) return initial;
  std::optional<data::ImageDecoding> of_first;
  std::string refusal;
  std::vector<uint8_t> file;
  data::DecodedMemory memory;
  for (const auto& path : first_images) {
    auto decoding = initial;
    try {
      read_bytes(path.string(), file);
      if (is_auto) decoding.mode = data::find_traits(file).mode;
      // The header of a JPEG file suffices, because decoding large photographs at each start takes long.
      if (data::find_size(file, decoding)) return decoding;
      const auto image = data::decode_image(file, decoding, memory);
      if (decoding.mode != ImageMode::kRaw) return decoding;
      decoding.channels = image.channels;
      decoding.maximum = image.maximum;
      return decoding;
    } catch (const std::runtime_error& reason) {
      if (of_first) continue;
      of_first = decoding;
      refusal = fmt::format("{}: {}", path.string(), reason.what());
    }
  }
  if (!of_first) return initial;
  if (of_first->mode != ImageMode::kRaw) return *of_first;  // the errors are reported when the images are read
  throw std::runtime_error(fmt::format("the number of channels is unknown, because no image can be read ({} tried); the first is {}",
                                       first_images.size(), refusal));
}

data::DatasetInfo image_files_info(std::vector<std::string> class_names, const data::ImageDecoding& decoding, int64_t side) {
  const auto num_classes = static_cast<int64_t>(class_names.size());
  return {.shape = {decoding.num_channels().value_or(3), side, side},
          .is_image = true,
          .num_classes = num_classes,
          .num_targets = 1,
          .class_names = std::move(class_names),
          .decoding = decoding};
}

std::string describe_targets(const data::DatasetInfo& info) {
  if (info.num_classes == 0) return fmt::format("with {} each", counted(info.num_targets, "number"));
  const auto classes = counted(info.num_classes, "class", "classes");
  return info.is_multi_label ? fmt::format("with any of {} each", classes) : "in " + classes;
}

std::unique_ptr<data::Dataset> open_image_files(data::DatasetInfo info, ImageList images, const std::filesystem::path& source,
                                                Logger& logger) {
  const int64_t num_used = info.has_labels() ? images.num_classes_with_images() : info.num_classes;
  const auto targets = num_used == info.num_classes ? describe_targets(info)
                                                    : fmt::format("in {} of {}", num_used, counted(info.num_classes, "class", "classes"));
  logger.info("{}: {} {}", source.string(), counted(images.size(), "image"), targets);
  if (!images.warning().empty()) logger.warn("{}: {}", source.string(), images.warning());
  return std::make_unique<ImageFiles>(std::move(info), std::move(images));
}

std::string with_imagenet_normalisation(std::string list) {
  if (!list.empty()) list += ", ";
  return fmt::format("[{}{{normalize: {{mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}}}]", list);
}

data::DefaultTransforms imagenet_transforms(data::ImageMode mode) {
  if (mode != data::ImageMode::kRgb) {
    return {.train = "[{random_resized_crop: {size: 224}}, random_horizontal_flip]",
            .validation = "[{resize: {size: 256}}, {center_crop: {size: 224}}]"};
  }
  return {.train = with_imagenet_normalisation("{random_resized_crop: {size: 224}}, random_horizontal_flip"),
          .validation = with_imagenet_normalisation("{resize: {size: 256}}, {center_crop: {size: 224}}")};
}

}  // namespace trainer::datasets
