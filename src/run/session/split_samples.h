#pragma once
// Which of the training samples are held out for validation. All of it is a function of the arguments alone.

#include <cstdint>
#include <utility>
#include <vector>

namespace trainer::session {

// Two ascending lists of the elements of `all`: `count` of them, chosen by the seed, and the others.
using SampleSplit = std::pair<std::vector<int64_t>, std::vector<int64_t>>;
SampleSplit split_samples(std::vector<int64_t> all, int64_t count, uint64_t seed);

// The same of the indices of `labels`, of which each is at least 0: each class gives its part of `count`, rounded so that the sum is
// `count`. A class keeps at least one sample, so that fewer than `count` are chosen if most classes have only one.
SampleSplit split_by_class(const std::vector<int64_t>& labels, int64_t count, uint64_t seed);

std::vector<int64_t> indices_up_to(int64_t size);

}  // namespace trainer::session
