#pragma once
// The interface of data sets. It does not use torch: samples are plain memory.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "input/image.h"

namespace trainer::input {

// The properties of a data set that are known before its files are read.
struct DatasetInfo {
  std::vector<int64_t> shape;  // of one sample: {channels, height, width}, or {features}
  bool is_image = true;        // uint8 pixels, to which transforms apply; false: floating-point values, used unchanged
  int64_t num_classes = 0;     // 0: targets are floating-point vectors
  int64_t num_targets = 1;     // length of a floating-point target
};

// One sample as it is stored. Views stay valid as long as the data set, or until the next read into the same scratch.
struct Sample {
  ImageView image;                // when info().is_image
  std::span<const float> values;  // otherwise: the product of `shape` values
  int64_t label = 0;              // when info().num_classes > 0
  std::span<const float> target;  // otherwise: num_targets values
};

// Memory that a reader may decode into; one for each loader thread.
struct Scratch {
  std::vector<uint8_t> bytes;
  std::vector<float> values;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const DatasetInfo& info() const = 0;
  virtual int64_t size() const = 0;
  // The sample at `index`, 0 <= index < size(). Thread-safe, with one scratch for each thread.
  virtual Sample read(int64_t index, Scratch& scratch) const = 0;
  // A hint that the read after the next one is read(index): hides the memory latency of shuffled samples.
  virtual void prefetch(int64_t /*index*/) const {}
};

// Some samples of another data set, which must outlive it.
class Subset : public Dataset {
 public:
  Subset(const Dataset& dataset, std::vector<int64_t> indices) : dataset_(dataset), indices_(std::move(indices)) {}
  const DatasetInfo& info() const override { return dataset_.info(); }
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  Sample read(int64_t index, Scratch& scratch) const override { return dataset_.read(indices_[static_cast<size_t>(index)], scratch); }
  void prefetch(int64_t index) const override { dataset_.prefetch(indices_[static_cast<size_t>(index)]); }

 private:
  const Dataset& dataset_;
  std::vector<int64_t> indices_;
};

}  // namespace trainer::input
