#pragma once
// A data set for tests of the loader, and helpers of these tests.

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <set>
#include <stdexcept>
#include <vector>

#include "data/data_loader.h"
#include "tests/testing/read_component.h"
#include "trainer/random.h"
#include "trainer/torch.h"

namespace trainer::data {

inline constexpr int64_t kImageSize = 8;

inline std::vector<int64_t> first_indices(int64_t count) {
  std::vector<int64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// Counts the reads in progress.
class Reading {
 public:
  explicit Reading(std::atomic<int64_t>& count) : count_(count) { ++count_; }
  ~Reading() { --count_; }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  std::atomic<int64_t>& count_;
};

// Images of random pixels, labelled by their index. read() writes the pixels to scratch memory, like a read of a real file.
class CountingImages : public Dataset {
 public:
  explicit CountingImages(int64_t size) : size_(size) {}
  const DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return size_; }
  Sample read(int64_t index, Scratch& scratch) const override {
    ++num_reads;
    const Reading reading(num_reading);
    if (fail_at.contains(index)) throw std::runtime_error("the file is damaged");
    CounterRandom random(11, static_cast<uint64_t>(index));
    scratch.bytes.resize(3 * kImageSize * kImageSize);
    for (auto& byte : scratch.bytes) byte = static_cast<uint8_t>(random.next_below(256));
    Sample sample;
    sample.image = ImageView::whole(scratch.bytes.data(), 3, kImageSize, kImageSize);
    sample.target.label = index + label_offset;
    return sample;
  }

  mutable std::atomic<int64_t> num_reads = 0;
  mutable std::atomic<int64_t> num_reading = 0;  // threads in read()
  std::set<int64_t> fail_at;
  int64_t label_offset = 0;

 private:
  DatasetInfo info_{.shape = {3, kImageSize, kImageSize}, .num_classes = 1000};
  int64_t size_;
};

inline Pipeline augmenting_pipeline(const DatasetInfo& info, BatchLayout layout = {}) {
  return {trainer::testing::read_components(transform_registry(), "[random_crop: {size: 8, padding: 2}, random_horizontal_flip]"), info,
          layout};
}

struct LoadedEpoch {
  std::vector<torch::Tensor> images;
  std::vector<torch::Tensor> targets;
  std::vector<std::vector<int64_t>> positions;
};

inline LoadedEpoch load_all(DataLoader& loader) {
  LoadedEpoch all;
  while (const Batch* batch = loader.next()) {
    EXPECT_EQ(batch->images.size(0), batch->size);
    EXPECT_EQ(batch->targets.size(0), batch->size);
    all.images.push_back(batch->images.clone());
    all.targets.push_back(batch->targets.clone());
    all.positions.push_back(batch->positions);
  }
  return all;
}

inline torch::Tensor joined_labels(const LoadedEpoch& epoch) { return torch::cat(epoch.targets); }

}  // namespace trainer::data
