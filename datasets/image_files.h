#pragma once
// What the data sets have in common whose samples are image files. The files are decoded by whoever reads the samples.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/registry.h"

namespace trainer::datasets {

// The keys by which a data set says how its image files are read.
struct ImageFileOptions {
  data::ImageMode mode = data::ImageMode::kAuto;
  bool is_turned_upright = true;

  // Whether the first image decides what they mean.
  bool need_image() const { return mode == data::ImageMode::kAuto || mode == data::ImageMode::kRaw; }
  void describe(KeyTable& keys);
};

// Of a data set that has these keys; null: it has not.
ImageFileOptions* image_file_options(const ComponentConfig& dataset);

// What the keys mean for images of which that is the first; without one, and for one that cannot be read, kAuto is kRgb. In kRaw the first
// image is decoded; throws std::runtime_error, with the file and the reason, if that fails.
data::ImageDecoding decoding_of(const ImageFileOptions& options, const std::optional<std::filesystem::path>& first_image);

// The images of one split. A million of them take tens of megabytes.
class ImageList {
 public:
  explicit ImageList(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // `path`: relative to the folder, or absolute; without a '\0'.
  void add(std::string_view path, int64_t label);
  // With target values, as many for each image.
  void add(std::string_view path, std::span<const float> target_values);

  // What to say about files that are not in the list; empty: nothing.
  void set_warning(std::string warning) { warning_ = std::move(warning); }
  const std::string& warning() const { return warning_; }

  int64_t size() const { return static_cast<int64_t>(offsets_.size()); }
  int64_t label(int64_t index) const { return labels_[static_cast<size_t>(index)]; }
  // As it was added.
  std::string_view name(int64_t index) const { return paths_.data() + offsets_[static_cast<size_t>(index)]; }
  std::string path(int64_t index) const { return (folder_ / name(index)).string(); }
  // Empty if the images have labels.
  std::span<const float> target_values(int64_t index) const;
  // Of the image that was added last.
  void set_group(std::string_view group);
  std::string group(int64_t index) const { return groups_.empty() ? "" : groups_[static_cast<size_t>(index)]; }
  int64_t num_classes_with_images() const;

 private:
  void add_path(std::string_view path);

  std::filesystem::path folder_;
  std::string paths_;                // a '\0' ends each
  std::vector<uint64_t> offsets_;    // of each path
  std::vector<int32_t> labels_;      // of each path, if they have labels
  std::vector<float> values_;        // otherwise the target values of each path
  std::vector<std::string> groups_;  // of each path; empty: they have none
  std::string warning_;
};

// "in 3 classes", "with 2 numbers each".
std::string describe_targets(const data::DatasetInfo& info);

// `side`: height and width of all images, or kAnySize.
data::DatasetInfo image_files_info(std::vector<std::string> class_names, const data::ImageDecoding& decoding = {},
                                   int64_t side = data::kAnySize);

// Logs how many images `source` (a file or folder) has, and the warning of the list. An image is read when its sample is; a failure then is
// a std::runtime_error with only the reason.
std::unique_ptr<data::Dataset> open_image_files(data::DatasetInfo info, ImageList images, const std::filesystem::path& source,
                                                Logger& logger);

// A list of transforms that ends with the normalisation of ImageNet. `list`: the others, or empty.
std::string with_imagenet_normalisation(std::string list);
// Of images of any size, for networks of 224 x 224. Those of other modes than kRgb are not normalised.
data::DefaultTransforms imagenet_transforms(data::ImageMode mode = data::ImageMode::kRgb);

}  // namespace trainer::datasets
