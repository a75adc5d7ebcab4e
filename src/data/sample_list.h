#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "trainer/transform.h"

namespace trainer::data {

// Samples of an epoch, in the order in which they are taken.
struct SampleList {
  std::vector<int64_t> indices;
  std::vector<uint32_t> occurrences;  // of each index; empty: all are 0

  SampleList() = default;
  SampleList(std::vector<int64_t> all_indices, std::vector<uint32_t> all_occurrences = {})
      : indices(std::move(all_indices)), occurrences(std::move(all_occurrences)) {}

  size_t size() const { return indices.size(); }
  EpochSample operator[](size_t i) const { return {indices[i], occurrences.empty() ? 0 : occurrences[i]}; }
  // Those at the positions from `first` to `end`, exclusive.
  SampleList slice(int64_t first, int64_t end) const {
    if (occurrences.empty()) return {{indices.begin() + first, indices.begin() + end}};
    return {{indices.begin() + first, indices.begin() + end}, {occurrences.begin() + first, occurrences.begin() + end}};
  }
  // `other`: of the same sampler.
  void append(const SampleList& other) {
    indices.insert(indices.end(), other.indices.begin(), other.indices.end());
    occurrences.insert(occurrences.end(), other.occurrences.begin(), other.occurrences.end());
  }
};

}  // namespace trainer::data
