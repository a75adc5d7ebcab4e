#pragma once
// Helpers for data sets whose samples are image files. The caller of read() decodes the files.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/dataset_registry.h"

namespace trainer::datasets {

// The keys of a data set that control how its image files are read.
struct ImageFileOptions {
  data::ImageMode mode = data::ImageMode::kAuto;
  bool is_turned_upright = true;

  // Whether the meaning of the keys depends on the images.
  bool need_images() const { return mode == data::ImageMode::kAuto || mode == data::ImageMode::kRaw; }
  void describe(KeyTable& keys);
};

// Damaged images are passed over until this many have been tried.
inline constexpr size_t kMostTriedImages = 100;

// Resolves the keys for a data set with these first images, of which the first one that can be read counts. If there are no images, or if
// none can be read and the first does not look like kGrey16 or kRaw, kAuto becomes kRgb. With kRaw, throws std::runtime_error with the
// first file and the reason if none of the images can be read.
data::ImageDecoding decoding_of(const ImageFileOptions& options, std::span<const std::filesystem::path> first_images);

// The images of one split. A million of them need tens of megabytes.
class ImageList {
 public:
  explicit ImageList(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // `path`: relative to the folder, or absolute; without a '\0'.
  void add(std::string_view path, int64_t label);
  // With target values; their number is the same for each image.
  void add(std::string_view path, std::span<const double> target_values);

  // Sets a warning about files that are not in the list; empty: none.
  void set_warning(std::string warning) { warning_ = std::move(warning); }
  const std::string& warning() const { return warning_; }

  int64_t size() const { return static_cast<int64_t>(offsets_.size()); }
  int64_t label(int64_t index) const { return labels_[static_cast<size_t>(index)]; }
  // The path as it was added.
  std::string_view name(int64_t index) const { return paths_.data() + offsets_[static_cast<size_t>(index)]; }
  std::string path(int64_t index) const { return (folder_ / name(index)).string(); }
  // Empty if the images have labels.
  std::span<const double> target_values(int64_t index) const;
  // Sets the group of the image that was added last.
  void set_group(std::string_view group);
  std::string group(int64_t index) const { return groups_.empty() ? "" : groups_[static_cast<size_t>(index)]; }
  int64_t num_classes_with_images() const;

 private:
  void add_path(std::string_view path);

  std::filesystem::path folder_;
  std::string paths_;                // each ends with '\0'
  std::vector<uint64_t> offsets_;    // of each path in paths_
  std::vector<int32_t> labels_;      // of each image, if they have labels
  std::vector<double> values_;       // otherwise the target values of each image
  std::vector<std::string> groups_;  // of each image; empty: they have none
  std::string warning_;
};

// Such as "in 3 classes" or "with 2 numbers each".
std::string describe_targets(const data::DatasetInfo& info);

// `side`: height and width of all images, or kAnySize.
data::DatasetInfo image_files_info(std::vector<std::string> class_names, const data::ImageDecoding& decoding = {},
                                   int64_t side = data::kAnySize);

// Logs the number of images of `source` (a file or folder), and the warning of the list. The files are read only by the data set's read(),
// which throws std::runtime_error with only the reason.
std::unique_ptr<data::Dataset> open_image_files(data::DatasetInfo info, ImageList images, const std::filesystem::path& source,
                                                Logger& logger);

// A list of transforms that ends with ImageNet's normalisation. `list`: the other transforms, or empty.
std::string with_imagenet_normalisation(std::string list);
// The default transforms, from images of any size to 224 x 224 pixels. Images are normalised only with kRgb.
data::DefaultTransforms imagenet_transforms(data::ImageMode mode = data::ImageMode::kRgb);

}  // namespace trainer::datasets
