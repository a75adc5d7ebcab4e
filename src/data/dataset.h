#pragma once
// Internal helpers for data sets; the public interface is trainer/dataset.h.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/dataset.h"
#include "trainer/transform.h"

namespace trainer::data {

// The names of all modes except kAuto.
inline constexpr std::array<std::pair<const char*, ImageMode>, 4> kImageModes = {
    {{"rgb", ImageMode::kRgb}, {"grey", ImageMode::kGrey}, {"grey16", ImageMode::kGrey16}, {"raw", ImageMode::kRaw}}};
inline const char* name_of(ImageMode mode) {
  return std::ranges::find(kImageModes, mode, &decltype(kImageModes)::value_type::second)->first;
}
// Throws std::runtime_error with the reason.
inline ImageMode image_mode_of(std::string_view name) {
  const auto found = std::ranges::find_if(kImageModes, [&](const auto& mode) { return name == mode.first; });
  if (found == kImageModes.end()) throw std::runtime_error("unknown image mode " + std::string(name));
  return found->second;
}

// Returns at most `most` indices of samples, evenly spaced between 0 and size - 1.
inline std::vector<int64_t> evenly_spaced(int64_t size, int64_t most) {
  const int64_t count = std::min(size, most);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) indices.push_back(i * size / count);
  return indices;
}

// Returns why the label is not valid, or an empty string if it is.
inline std::string refusal_of_label(int64_t label, int64_t num_classes) {
  if (label >= 0 && label < num_classes) return "";
  return "its label is " + std::to_string(label) + ", but labels must be in the range 0 to " + std::to_string(num_classes - 1);
}

// The same for the target of a sample; the label is checked only if the data set has labels.
inline std::string refusal_of_label(const Target& target, const DatasetInfo& info) {
  return info.has_labels() ? refusal_of_label(target.label, info.num_classes) : "";
}

// Throws DataError if a mask does not fit its image.
inline void check_mask_size(const ImageView& mask, int height, int width) {
  if (mask.channels == 1 && mask.height == height && mask.width == width) return;
  const auto text = [](int channels, int rows, int columns) {
    return std::to_string(channels) + " x " + std::to_string(rows) + " x " + std::to_string(columns);
  };
  throw DataError("the mask has " + text(mask.channels, mask.height, mask.width) +
                  " values (channels x height x width), but the image needs " + text(1, height, width));
}

// Throws DataError if the labels of a mask are not valid.
inline void check_mask_labels(std::span<const uint8_t> labels, int64_t num_classes) {
  const auto wrong = std::ranges::find_if(labels, [&](uint8_t label) { return label >= num_classes && label != kNoClass; });
  if (wrong == labels.end()) return;
  throw DataError("its mask has a pixel with the label " + std::to_string(*wrong) + ", but labels must be in the range 0 to " +
                  std::to_string(num_classes - 1) + ", or " + std::to_string(kNoClass) + " where there is no class");
}

// A data set whose samples are those of another one, except for what a derived class overrides.
class Decorator : public Dataset {
 public:
  explicit Decorator(std::shared_ptr<const Dataset> dataset) : dataset_(std::move(dataset)) {}
  const DatasetInfo& info() const override { return dataset_->info(); }
  int64_t size() const override { return dataset_->size(); }
  Sample read(int64_t index, Scratch& scratch) const override { return dataset_->read(inner(index), scratch); }
  Target target(int64_t index, Scratch& scratch) const override { return dataset_->target(inner(index), scratch); }
  SampleOrigin origin(int64_t index) const override { return dataset_->origin(inner(index)); }
  std::optional<int64_t> num_bytes(int64_t index) const override { return dataset_->num_bytes(inner(index)); }
  void check(int64_t index) const override { dataset_->check(inner(index)); }
  void prefetch(int64_t index) const override { dataset_->prefetch(inner(index)); }

 private:
  // The index of a sample in the other data set.
  virtual int64_t inner(int64_t index) const { return index; }

  std::shared_ptr<const Dataset> dataset_;
};

// A subset of the samples of another data set.
class Subset : public Decorator {
 public:
  Subset(std::shared_ptr<const Dataset> dataset, std::vector<int64_t> indices)
      : Decorator(std::move(dataset)), indices_(std::move(indices)) {}
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }

 private:
  int64_t inner(int64_t index) const override { return indices_[static_cast<size_t>(index)]; }

  std::vector<int64_t> indices_;
};

// Reads the targets of all samples. Throws std::logic_error if the targets are masks, and the errors of label() and target_values().
TargetSummary summarize_targets(const Dataset& dataset);

struct UnreadableSample {
  int64_t index = 0;
  std::string reason;
};

// Checks, reads and decodes all samples on `num_threads` threads. Returns the samples for which this fails or whose label or mask is not
// valid, in the order of the data set. The calling thread calls `report_progress` a few times a second with the number of samples that were
// read so far; if it returns false, the rest is not read. The other threads call `visit` with each usable sample and its decoded image.
std::vector<UnreadableSample> find_unreadable_samples(
    const Dataset& dataset, int num_threads, const std::function<bool(int64_t num_read)>& report_progress,
    const std::function<void(int64_t index, const Sample&, const ImageView& image)>& visit = {});

// The samples of an epoch, in the order in which they are loaded.
struct SampleList {
  std::vector<int64_t> indices;
  std::vector<uint32_t> occurrences;  // the occurrence of each index; if empty, all are 0

  SampleList() = default;
  SampleList(std::vector<int64_t> all_indices, std::vector<uint32_t> all_occurrences = {})
      : indices(std::move(all_indices)), occurrences(std::move(all_occurrences)) {}

  size_t size() const { return indices.size(); }
  EpochSample operator[](size_t i) const { return {indices[i], occurrences.empty() ? 0 : occurrences[i]}; }
  // The samples at the positions [first, end).
  SampleList slice(int64_t first, int64_t end) const {
    if (occurrences.empty()) return {{indices.begin() + first, indices.begin() + end}};
    return {{indices.begin() + first, indices.begin() + end}, {occurrences.begin() + first, occurrences.begin() + end}};
  }
  // `other` must be from the same sampler.
  void append(const SampleList& other) {
    indices.insert(indices.end(), other.indices.begin(), other.indices.end());
    occurrences.insert(occurrences.end(), other.occurrences.begin(), other.occurrences.end());
  }
};

}  // namespace trainer::data
