#pragma once
// The interface of data sets. It does not use torch: samples are plain memory.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "input/image.h"

namespace trainer::input {

// Height and width of `DatasetInfo::shape` where they differ from image to image.
inline constexpr int64_t kAnySize = -1;
// `DatasetInfo::num_classes` before the files that tell it can be read.
inline constexpr int64_t kUnknownClasses = -1;

// The properties of all samples of a data set.
struct DatasetInfo {
  std::vector<int64_t> shape;  // of one sample: {channels, height, width}, or {features}
  bool is_image = true;        // uint8 pixels, to which transforms apply; false: floating-point values that are used as they are
  int64_t num_classes = 0;     // 0: targets are floating-point vectors
  int64_t num_targets = 1;     // length of a floating-point target
  std::vector<std::string> class_names = {};  // of each label; empty: the classes have only numbers
};

// One stored sample. Views are valid while the data set exists, or until the next read into the same scratch.
struct Sample {
  ImageView image;                        // when info().is_image, unless `encoded` is given
  std::span<const uint8_t> encoded = {};  // the image as the bytes of an image file, which is still to be decoded
  std::span<const float> values;          // otherwise: the product of `shape` values
  int64_t label = 0;                      // when info().num_classes > 0
  std::span<const float> target;          // otherwise: num_targets values
};

// Memory into which a reader may decode; one for each loader thread.
struct Scratch {
  std::vector<uint8_t> bytes;
  std::vector<float> values;
};

// `most` indices of samples, evenly spaced from 0 to size - 1, or all of them.
inline std::vector<int64_t> evenly_spaced(int64_t size, int64_t most) {
  const int64_t count = std::min(size, most);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) indices.push_back(i * size / count);
  return indices;
}

// Why no sample can have that label; empty: one can.
inline std::string refusal_of_label(int64_t label, int64_t num_classes) {
  if (label >= 0 && label < num_classes) return "";
  return "its label is " + std::to_string(label) + ", but labels must lie in 0 to " + std::to_string(num_classes - 1);
}

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const DatasetInfo& info() const = 0;
  virtual int64_t size() const = 0;
  // The sample at `index`, 0 <= index < size(). Must be thread-safe: several threads call it concurrently.
  virtual Sample read(int64_t index, Scratch& scratch) const = 0;
  // The label of that sample, without reading it where that takes long. As read(), it may be called concurrently and may throw.
  virtual int64_t label(int64_t index) const {
    Scratch scratch;
    return read(index, scratch).label;
  }
  // Looks for damage of the stored sample that read() does not look for, because that would take too long in training. Thread-safe. Throws
  // std::runtime_error with only the reason.
  virtual void check(int64_t /*index*/) const {}
  // The index of that sample in the data set as it was opened, when this one is a part of it.
  virtual int64_t index_in_files(int64_t index) const { return index; }
  // What a message calls that sample, such as its file; empty: it has only its index.
  virtual std::string name(int64_t /*index*/) const { return ""; }
  // "sample 17", or with its name "sample 17, data/cat/1.jpg".
  std::string describe(int64_t index) const {
    const auto text = name(index);
    return "sample " + std::to_string(index) + (text.empty() ? "" : ", " + text);
  }
  // What tells a sample from that of another copy of the data set, without reading its pixels.
  struct ListedSample {
    std::string_view name = {};  // as in the data set's own folder, which may lie elsewhere on another host; empty: it has only its index
    int64_t label = 0;
    int64_t num_bytes = 0;  // 0: not known
  };
  // Calls `use` for each sample, in their order. Generated samples, which have no copies, are not listed.
  virtual void list(const std::function<void(const ListedSample&)>& /*use*/) const {}
  // A hint that read(index) follows after the next read(). It hides the cache misses of shuffled samples in memory.
  virtual void prefetch(int64_t /*index*/) const {}
};

// Some samples of another data set, which must outlive this object.
class Subset : public Dataset {
 public:
  Subset(const Dataset& dataset, std::vector<int64_t> indices) : dataset_(dataset), indices_(std::move(indices)) {}
  const DatasetInfo& info() const override { return dataset_.info(); }
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  Sample read(int64_t index, Scratch& scratch) const override { return dataset_.read(indices_[static_cast<size_t>(index)], scratch); }
  int64_t label(int64_t index) const override { return dataset_.label(indices_[static_cast<size_t>(index)]); }
  void check(int64_t index) const override { dataset_.check(indices_[static_cast<size_t>(index)]); }
  int64_t index_in_files(int64_t index) const override { return dataset_.index_in_files(indices_[static_cast<size_t>(index)]); }
  std::string name(int64_t index) const override { return dataset_.name(indices_[static_cast<size_t>(index)]); }
  void prefetch(int64_t index) const override { dataset_.prefetch(indices_[static_cast<size_t>(index)]); }

 private:
  const Dataset& dataset_;
  std::vector<int64_t> indices_;
};

}  // namespace trainer::input
