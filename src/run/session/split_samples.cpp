#include "run/session/split_samples.h"

#include <algorithm>
#include <numeric>

#include "train/engine/parts.h"
#include "trainer/random.h"

namespace trainer::session {
namespace {

struct ClassShare {
  int64_t size = 0;
  int64_t count = 0;      // of its samples that are chosen
  int64_t remainder = 0;  // what rounding down has taken from it, times the number of all samples
};

std::vector<int64_t> shuffled(std::vector<int64_t> all, uint64_t seed) {
  CounterRandom random(seed, engine::kSplitStream);
  for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.next_below(static_cast<uint32_t>(i))]);
  return all;
}

// Of each class, which are in the order in which they come first in `order`, so that the seed decides between equal remainders.
std::vector<ClassShare> class_shares(const std::vector<int64_t>& labels, const std::vector<int64_t>& order, int64_t count) {
  std::vector<ClassShare> shares(labels.empty() ? 0 : static_cast<size_t>(std::ranges::max(labels)) + 1);
  std::vector<ClassShare*> classes;
  for (const auto index : order) {
    auto& share = shares[static_cast<size_t>(labels[static_cast<size_t>(index)])];
    if (share.size++ == 0) classes.push_back(&share);
  }
  int64_t num_missing = count;
  for (auto* share : classes) {
    const auto size = static_cast<int64_t>(labels.size());
    share->count = std::min(share->size * count / size, share->size - 1);
    share->remainder = share->size * count % size;
    num_missing -= share->count;
  }
  std::ranges::stable_sort(classes, std::greater(), &ClassShare::remainder);
  std::erase_if(classes, [](const auto* share) { return share->count == share->size - 1; });
  while (num_missing > 0 && !classes.empty()) {
    for (auto* share : classes) share->count += num_missing-- > 0 ? 1 : 0;
    std::erase_if(classes, [](const auto* share) { return share->count == share->size - 1; });
  }
  return shares;
}

}  // namespace

std::vector<int64_t> indices_up_to(int64_t size) {
  std::vector<int64_t> indices(static_cast<size_t>(size));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return indices;
}

SampleSplit split_samples(std::vector<int64_t> all, int64_t count, uint64_t seed) {
  all = shuffled(std::move(all), seed);
  const auto middle = all.begin() + count;
  std::sort(all.begin(), middle);
  std::sort(middle, all.end());
  return {{all.begin(), middle}, {middle, all.end()}};
}

SampleSplit split_by_class(const std::vector<int64_t>& labels, int64_t count, uint64_t seed) {
  const auto order = shuffled(indices_up_to(static_cast<int64_t>(labels.size())), seed);
  auto shares = class_shares(labels, order, count);
  SampleSplit result;
  for (const auto index : order) {
    auto& num_missing = shares[static_cast<size_t>(labels[static_cast<size_t>(index)])].count;
    (num_missing > 0 ? result.first : result.second).push_back(index);
    if (num_missing > 0) --num_missing;
  }
  std::ranges::sort(result.first);
  std::ranges::sort(result.second);
  return result;
}

}  // namespace trainer::session
