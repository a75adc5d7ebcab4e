#pragma once
// Data sets: samples as plain memory, and the description of a data set before it is opened. This header needs no LibTorch.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/component.h"
#include "trainer/error.h"

namespace spdlog {
class logger;
}

namespace trainer {
using Logger = spdlog::logger;
// For code that does not use spdlog.
void log_info(Logger& logger, const std::string& text);
void log_warning(Logger& logger, const std::string& text);
}  // namespace trainer

namespace trainer::data {

enum class Padding { kZero, kReflect };
// The same as Pillow's: antialiased except for kNearest.
enum class Interpolation { kBilinear, kBicubic, kLanczos, kNearest };

// Planar: [channels][height][width]. Interleaved: [height][width][channels].
enum class PixelOrder { kPlanar, kInterleaved };

// A rectangle of pixels.
struct Box {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;
};

// A window into an image, which may extend beyond the image's edges; `padding` defines the pixels there. With `mirrored`, its rows are read
// from right to left; with `flipped`, from bottom to top.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int channels = 0;
  int height = 0;
  int width = 0;
  int top = 0;  // first row and column of the window, in the coordinates of the stored image
  int left = 0;
  int window_height = 0;
  int window_width = 0;
  bool mirrored = false;
  Padding padding = Padding::kZero;
  PixelOrder order = PixelOrder::kPlanar;
  bool flipped = false;
  // Set instead of `pixels` for images of the modes kGrey16 and kRaw (ImageMode); interleaved.
  const float* values = nullptr;
  float maximum = 0;  // 255 or 65535: `values` are integers from 0 to this, and a resize rounds its results; 0: other `values`
  uint8_t fill = 0;   // of `pixels`: the value of Padding::kZero

  static ImageView whole(const uint8_t* pixels, int channels, int height, int width, PixelOrder order = PixelOrder::kPlanar) {
    return {pixels, channels, height, width, 0, 0, height, width, false, Padding::kZero, order, false, nullptr, 0, 0};
  }
  bool operator==(const ImageView&) const = default;
};

// The height and width in `DatasetInfo::shape` if they differ between images.
inline constexpr int64_t kAnySize = -1;
// The value of `DatasetInfo::num_classes`, or of `num_targets` without classes, if the files that define it cannot be read yet.
inline constexpr int64_t kUnknownClasses = -1;

// How the content of an image file becomes an image.
enum class ImageMode {
  kAuto,    // only as the value of a key: kGrey16 or kRaw if the first readable image needs it, else kRgb
  kRgb,     // 8 bits of red, green and blue: Pillow's convert("RGB")
  kGrey,    // 8 bits of grey: Pillow's convert("L")
  kGrey16,  // 16 bits of grey, as in the file: Pillow's mode "I;16"
  kRaw,     // all channels of TIFF and .npy files: unsigned integers of 8 or 16 bits, or signed or floating-point numbers
};

// How the files of a data set (Sample::encoded) are read.
struct ImageDecoding {
  ImageMode mode = ImageMode::kRgb;
  bool is_turned_upright = false;  // by the EXIF orientation; TIFF files are always turned, as in Pillow
  // For kRaw: the number of channels that all images must have, if it is known, and the `maximum` of their ImageView.
  std::optional<int> channels = {};
  float maximum = 0;

  // Whether images have ImageView::values instead of 8-bit pixels.
  bool has_float_pixels() const { return mode == ImageMode::kGrey16 || mode == ImageMode::kRaw; }
  // Empty: unknown.
  std::optional<int> num_channels() const { return mode == ImageMode::kRgb ? 3 : mode == ImageMode::kRaw ? channels : 1; }
  bool operator==(const ImageDecoding&) const = default;
};

// The properties of all samples of a data set.
struct DatasetInfo {
  // Of one sample: {channels, height, width}, or {features}. The channels are only assumed if decoding.num_channels() is empty.
  std::vector<int64_t> shape = {};
  bool is_image = true;                        // true: pixels, to which transforms apply; false: floating-point values, not transformed
  int64_t num_classes = 0;                     // 0: targets are floating-point vectors
  int64_t num_targets = 1;                     // length of a floating-point target
  std::vector<std::string> class_names = {};   // by label; empty: the classes have only numbers
  bool has_masks = false;                      // whether each pixel of an image has its own label; needs classes
  bool is_multi_label = false;                 // whether a sample can belong to any number of classes; needs classes
  std::vector<std::string> target_names = {};  // of the numbers of a floating-point target; empty: they have none
  ImageDecoding decoding = {};                 // of the samples that are image files

  bool operator==(const DatasetInfo&) const = default;
  bool has_labels() const { return num_classes != 0 && !has_masks && !is_multi_label; }
  // Whether targets are num_outputs() values: a floating-point vector, or with is_multi_label 1 for each class of the sample and 0 for the
  // others.
  bool has_values() const { return !has_labels() && !has_masks; }
  // The names of the classes or numbers; empty: they have no names.
  const std::vector<std::string>& output_names() const { return num_classes != 0 ? class_names : target_names; }
  // The number of outputs that a network needs per sample or pixel; kUnknownClasses if the files that define it cannot be read yet.
  int64_t num_outputs() const { return num_classes != 0 ? num_classes : num_targets; }
  void set_num_outputs(int64_t count) { (num_classes != 0 ? num_classes : num_targets) = count; }
};

// Statistics of the training targets, for losses and tasks that depend on them.
struct TargetSummary {
  int64_t num_samples = 0;
  std::vector<int64_t> class_counts = {};  // with classes: the number of samples of each class
  // Without classes: mean and standard deviation of each number of a target; the deviation of a constant is 1.
  std::vector<double> mean = {};
  std::vector<double> deviation = {};
};

// In a mask, the label of a pixel that belongs to no class.
inline constexpr uint8_t kNoClass = 255;

// The desired output for a sample. The info of the data set defines which member is set.
struct Target {
  int64_t label = 0;                    // if has_labels()
  ImageView mask = {};                  // if has_masks: one channel with the label of each pixel, or kNoClass
  std::span<const double> values = {};  // if has_values(): num_outputs() values
};

// One stored sample. Views are valid until the next read into the same scratch, and at most while the data set exists.
struct Sample {
  ImageView image = {};                   // when info().is_image, unless `encoded` is given
  std::span<const uint8_t> encoded = {};  // the image as the bytes of an image file, not yet decoded
  std::span<const float> values = {};     // if !info().is_image: all values, in the order of info().shape
  Target target = {};
};

// Decodes an image file to the same pixels as Pillow's Image.open(file).convert("RGB"), which applies the orientation of TIFF files only.
// The view has three interleaved channels and is valid until `pixels` changes. Throws std::runtime_error with only the reason, also for
// 16-bit grey images. Thread-safe.
ImageView decode_image(std::span<const uint8_t> file, std::vector<uint8_t>& pixels);

// Memory for decoded samples; one object for each loader thread.
struct Scratch {
  std::vector<uint8_t> bytes;
  std::vector<uint8_t> mask;
  std::vector<float> values;
  std::vector<double> targets;
};

// Where a sample comes from.
struct SampleOrigin {
  std::string name = {};   // in messages, such as its file; empty: it has only its index
  std::string key = {};    // identifies the sample in all copies of the data set, for example the path of its file in the set's folder
  std::string group = {};  // of related samples, such as those of one person or place; empty: unknown
  int64_t index = 0;       // in the opened data set, of which this one may be a part
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const DatasetInfo& info() const = 0;
  virtual int64_t size() const = 0;
  // The sample at `index`, 0 <= index < size(). Must be thread-safe: several threads call it concurrently.
  virtual Sample read(int64_t index, Scratch& scratch) const = 0;

  // The rest is optional; it may be called concurrently too, and may throw.

  // The target without the sample, if that is faster than read().
  virtual Target target(int64_t index, Scratch& scratch) const { return read(index, scratch).target; }
  virtual SampleOrigin origin(int64_t index) const { return {.key = std::to_string(index), .index = index}; }
  // The number of bytes in which the sample is stored, by which copies of the data set are compared; 0: unknown. Not set: samples are
  // generated, so they have no copies.
  virtual std::optional<int64_t> num_bytes(int64_t /*index*/) const { return std::nullopt; }
  // Checks the stored sample for damage that read() does not detect, because that would take too long in training. Throws
  // std::runtime_error with only the reason.
  virtual void check(int64_t /*index*/) const {}
  // A hint that read(index) will be called soon, so that the sample can be loaded in advance.
  virtual void prefetch(int64_t /*index*/) const {}

  // Only for data sets with has_labels(), and with has_values().
  int64_t label(int64_t index) const {
    Scratch scratch;
    return target(index, scratch).label;
  }
  std::vector<double> target_values(int64_t index) const {
    Scratch scratch;
    const auto values = target(index, scratch).values;
    return {values.begin(), values.end()};
  }
  // For messages: "sample 17", or with its name "sample 17, data/cat/1.jpg".
  std::string describe(int64_t index) const {
    const auto name = origin(index).name;
    return "sample " + std::to_string(index) + (name.empty() ? "" : ", " + name);
  }
};

// kTest: the part of the training samples that `dataset.split` holds out; data sets are not opened with it.
enum class Split { kTrain, kValidation, kTest };

// Numbers of samples.
struct SplitSizes {
  int64_t train = 0;
  int64_t validation = 0;
};

// Lists of transforms in YAML, as in an experiment file.
struct DefaultTransforms {
  std::string train = "[]";
  std::string validation = "[]";
};

// A data set that is configured but not yet opened.
struct DatasetFactory {
  DatasetInfo info;
  // Downloads the files if configured, opens and checks them. Throws DataError with the file and what to do.
  std::function<std::unique_ptr<Dataset>(Split split, Logger& logger)> open;
  // The transforms of experiments that do not set any.
  DefaultTransforms default_transforms = {};
  // Whether it has validation samples; if not, some of the training samples are held out for validation.
  bool has_validation = true;
  // The reason why info.num_classes or info.num_targets is kUnknownClasses, and what to do; else empty.
  std::string missing = {};
  // The key of the data set that `missing` is about.
  std::string missing_key = "root";
  // Returns the data set's folder, after downloading the files if configured. Throws like open(). Empty: the data set has no folder.
  std::function<std::filesystem::path(Logger& logger)> locate = {};
  // Only with locate(): returns the files that the data set uses, relative to the folder. Throws like open(). Empty: it uses all files.
  std::function<std::vector<std::filesystem::path>()> list_files = {};
  // Only with locate(): returns the same data set with the files in another folder.
  std::function<DatasetFactory(const std::filesystem::path& folder)> in_folder = {};
  // The sizes, if no file is needed to know them: of generated samples, and of published data sets that are not downloaded yet. Not set:
  // open() reads them from files that exist, and must not download anything.
  std::optional<SplitSizes> sizes = {};
  // Whether all samples stay in this process's memory, in mapped or loaded files: product(info.shape) bytes each.
  bool is_in_memory = false;
};

// The functions that make a DatasetFactory must not read samples. To determine the classes, they may list folders and read small index
// files; if this fails, they must not throw, but set `missing`.
using DatasetRegistry = Registry<DatasetFactory>;

}  // namespace trainer::data
