#pragma once
// Data sets: samples as plain memory, and what an experiment file says about a set before it is opened. This header needs no LibTorch.

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

namespace spdlog {
class logger;
}

namespace trainer {
using Logger = spdlog::logger;
// For programs without spdlog.
void log_info(Logger& logger, const std::string& text);
void log_warning(Logger& logger, const std::string& text);
}  // namespace trainer

namespace trainer::data {

enum class Padding { kZero, kReflect };
// As Pillow's, antialiased but for kNearest.
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

// A window into an image. The window may extend beyond the image's edges; `padding` defines the pixels there. `mirrored` reads each row of
// the window from right to left, `flipped` the rows from bottom to top.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int channels = 0;
  int height = 0;
  int width = 0;
  int top = 0;  // window's first row and column, in the stored image's coordinates
  int left = 0;
  int window_height = 0;
  int window_width = 0;
  bool mirrored = false;
  Padding padding = Padding::kZero;
  PixelOrder order = PixelOrder::kPlanar;
  bool flipped = false;
  // In place of `pixels`, interleaved: of images of other than 8 bits (ImageMode).
  const float* values = nullptr;
  float maximum = 0;  // of `values` that are integers, which transforms keep so: 255 or 65535; 0: they are not

  static ImageView whole(const uint8_t* pixels, int channels, int height, int width, PixelOrder order = PixelOrder::kPlanar) {
    return {pixels, channels, height, width, 0, 0, height, width, false, Padding::kZero, order, false, nullptr, 0};
  }
  bool operator==(const ImageView&) const = default;
};

// Height and width of `DatasetInfo::shape` where they differ from image to image.
inline constexpr int64_t kAnySize = -1;
// `DatasetInfo::num_classes`, or `num_targets` without classes, before the files that tell it can be read.
inline constexpr int64_t kUnknownClasses = -1;

// What of an image file becomes an image.
enum class ImageMode {
  kAuto,    // only as the value of a key: of the other modes the one that keeps what the first image has, but never kGrey
  kRgb,     // 8 bits of red, green and blue: Pillow's convert("RGB")
  kGrey,    // 8 bits of grey: Pillow's convert("L")
  kGrey16,  // 16 bits of grey, as in the file: Pillow's mode "I;16"
  kRaw,     // all channels of TIFF and .npy files: 8 or 16 bits without a sign, or numbers
};

// How the files of a data set (Sample::encoded) are read.
struct ImageDecoding {
  ImageMode mode = ImageMode::kRgb;
  bool is_turned_upright = false;  // as its EXIF orientation says; that of TIFF always counts, as in Pillow
  // Of kRaw: the channels that all images must have, and the `maximum` of their ImageView. 0 channels: not known yet, any are taken.
  int channels = 0;
  float maximum = 0;

  // Whether images have ImageView::values in place of pixels of 8 bits.
  bool has_float_pixels() const { return mode == ImageMode::kGrey16 || mode == ImageMode::kRaw; }
  int num_channels() const { return mode == ImageMode::kRgb ? 3 : mode == ImageMode::kRaw ? channels : 1; }
  bool operator==(const ImageDecoding&) const = default;
};

// The properties of all samples of a data set.
struct DatasetInfo {
  std::vector<int64_t> shape = {};             // of one sample: {channels, height, width}, or {features}
  bool is_image = true;                        // pixels, to which transforms apply; false: floating-point values that are used as they are
  int64_t num_classes = 0;                     // 0: targets are floating-point vectors
  int64_t num_targets = 1;                     // length of a floating-point target
  std::vector<std::string> class_names = {};   // of each label; empty: the classes have only numbers
  bool has_masks = false;                      // each pixel of an image has a label of its own; needs classes
  bool is_multi_label = false;                 // a sample belongs to any number of the classes; needs classes
  std::vector<std::string> target_names = {};  // of the numbers of a floating-point target; empty: they have none
  ImageDecoding decoding = {};                 // of the samples that are image files

  bool has_labels() const { return num_classes != 0 && !has_masks && !is_multi_label; }
  // Whether targets are num_outputs() values: a floating-point vector, or with is_multi_label 1 for each class of the sample, else 0.
  bool has_values() const { return !has_labels() && !has_masks; }
  // Of each class or number; empty: they have no names.
  const std::vector<std::string>& output_names() const { return num_classes != 0 ? class_names : target_names; }
  // Which a network needs, for each sample or pixel; kUnknownClasses before the files that tell it can be read.
  int64_t num_outputs() const { return num_classes != 0 ? num_classes : num_targets; }
  void set_num_outputs(int64_t count) { (num_classes != 0 ? num_classes : num_targets) = count; }
};

// What the targets of training samples are like, for losses and tasks that depend on it.
struct TargetSummary {
  int64_t num_samples = 0;
  std::vector<int64_t> class_counts = {};  // of the samples of each class, with classes
  // Otherwise of each number: its mean, and its deviation, the square root of the mean squared difference from it; 1 for a constant.
  std::vector<double> mean = {};
  std::vector<double> deviation = {};
};

// The label in a mask of a pixel that belongs to no class.
inline constexpr uint8_t kNoClass = 255;

// What a network should give for a sample. The info of the data set says which member is used.
struct Target {
  int64_t label = 0;                   // if has_labels()
  ImageView mask = {};                 // if has_masks: the label of each pixel of the image, in one channel, or kNoClass
  std::span<const float> values = {};  // if has_values(): num_outputs() values
};

// One stored sample. Views are valid while the data set exists, or until the next read into the same scratch.
struct Sample {
  ImageView image = {};                   // when info().is_image, unless `encoded` is given
  std::span<const uint8_t> encoded = {};  // the image as the bytes of an image file, which is still to be decoded
  std::span<const float> values = {};     // otherwise: the product of `shape` values
  Target target = {};
};

// The pixels of an image file's bytes as Pillow gives them (Image.open(file).convert("RGB"), so turned as the file says only for TIFF):
// JPEG, PNG, WebP, BMP, TIFF, PBM, PGM and PPM. The view has three interleaved channels and is valid until `pixels` changes. Throws
// std::runtime_error with the reason alone, since the caller knows the file, also for 16 bits of grey, of which Pillow would make all above
// 255 white; UsageError in a build without OpenCV. May be called by several threads.
ImageView decode_image(std::span<const uint8_t> file, std::vector<uint8_t>& pixels);

// Memory into which a reader may decode; one for each loader thread.
struct Scratch {
  std::vector<uint8_t> bytes;
  std::vector<uint8_t> mask;
  std::vector<float> values;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const DatasetInfo& info() const = 0;
  virtual int64_t size() const = 0;
  // The sample at `index`, 0 <= index < size(). Must be thread-safe: several threads call it concurrently.
  virtual Sample read(int64_t index, Scratch& scratch) const = 0;
  // The label of that sample, if has_labels(), without reading it where that takes long. As read(), it may be called concurrently and may
  // throw.
  virtual int64_t label(int64_t index) const {
    Scratch scratch;
    return read(index, scratch).target.label;
  }
  // The same of its target values, if has_values().
  virtual std::vector<float> target_values(int64_t index) const {
    Scratch scratch;
    const auto values = read(index, scratch).target.values;
    return {values.begin(), values.end()};
  }
  // Looks for damage of the stored sample that read() does not look for, because that would take too long in training. Thread-safe. Throws
  // std::runtime_error with only the reason.
  virtual void check(int64_t /*index*/) const {}
  // The index of that sample in the data set as it was opened, when this one is a part of it.
  virtual int64_t index_in_files(int64_t index) const { return index; }
  // What a message calls that sample, such as its file; empty: it has only its index.
  virtual std::string name(int64_t /*index*/) const { return ""; }
  // What identifies that sample in all copies of the data set, such as the path of its file in the set's folder; by default its index.
  virtual std::string key(int64_t index) const { return std::to_string(index); }
  // What it has in common with other samples of the same part, place or person; empty: the data set does not tell.
  virtual std::string group(int64_t /*index*/) const { return ""; }
  // "sample 17", or with its name "sample 17, data/cat/1.jpg".
  std::string describe(int64_t index) const {
    const auto text = name(index);
    return "sample " + std::to_string(index) + (text.empty() ? "" : ", " + text);
  }
  // What tells a sample from that of another copy of the data set, without reading its pixels.
  struct ListedSample {
    std::string_view name = {};  // as in the data set's own folder, which may lie elsewhere on another host; empty: it has only its index
    int64_t label = 0;
    int64_t num_bytes = 0;                      // 0: not known
    std::span<const float> target_values = {};  // if has_values()
  };
  // Calls `use` for each sample, in their order. Generated samples, which have no copies, are not listed.
  virtual void list(const std::function<void(const ListedSample&)>& /*use*/) const {}
  // A hint that read(index) follows after the next read(). It hides the cache misses of shuffled samples in memory.
  virtual void prefetch(int64_t /*index*/) const {}
};

// kTest: what `dataset.split` holds out of the training samples; a data set is not opened with it.
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
  // Downloads the files if configured, opens and checks them. Throws DataError that names the file and the remedy.
  std::function<std::unique_ptr<Dataset>(Split split, Logger& logger)> open;
  // For experiments that do not choose their own.
  DefaultTransforms default_transforms = {};
  // Whether it has validation samples; otherwise some of the training set are held out.
  bool has_validation = true;
  // Why info.num_classes is kUnknownClasses, and what to do; else empty.
  std::string missing = {};
  // The key of the data set that `missing` is about.
  std::string missing_key = "root";
  // The folder that holds all its files, which are downloaded if configured. Throws as open(). Empty: it has no folder of its own.
  std::function<std::filesystem::path(Logger& logger)> locate = {};
  // With locate(): the files of that folder that it uses, relative to it. Throws as open(). Empty: all of them.
  std::function<std::vector<std::filesystem::path>()> list_files = {};
  // With locate(): the same data set with the files of another folder.
  std::function<DatasetFactory(const std::filesystem::path& folder)> in_folder = {};
  // Known without files: those of generated samples, and as published those of a data set whose files are not there. Not set: open()
  // tells, without downloading anything.
  std::optional<SplitSizes> sizes = {};
  // Whether all samples stay in this process's memory, in mapped or loaded files: product(info.shape) bytes each.
  bool is_in_memory = false;
};

// make() reads no samples. To know the classes, it may list folders and read small files that index the samples; it does not throw when
// that fails.
using DatasetRegistry = Registry<DatasetFactory>;

}  // namespace trainer::data
