#include "input/distributed_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace trainer::input {
namespace {

struct SamplerCase {
  int64_t num_samples;
  int world_size;
  int rank;
  bool shuffle;
  bool drop_last;
  uint64_t seed;
  int64_t epoch;
  std::vector<int64_t> expected;
};

DistributedSampler make_sampler(const SamplerCase& of) {
  DistributedSampler sampler({.num_samples = of.num_samples,
                              .rank = of.rank,
                              .world_size = of.world_size,
                              .shuffle = of.shuffle,
                              .drop_last = of.drop_last,
                              .seed = of.seed});
  sampler.set_epoch(of.epoch);
  return sampler;
}

// Made with Python, for each line (n, w, r, sh, dl, seed, ep):
// s = torch.utils.data.DistributedSampler(range(n), w, r, sh, seed, dl); s.set_epoch(ep); print(list(s))
const std::vector<SamplerCase> kPythonsLists = {
    {10, 1, 0, true, false, 0, 0, {4, 1, 7, 5, 3, 9, 0, 8, 6, 2}},
    {10, 3, 0, true, false, 0, 0, {4, 5, 0, 2}},
    {10, 3, 2, true, false, 0, 0, {7, 9, 6, 1}},
    {10, 3, 1, true, true, 0, 0, {1, 3, 8}},
    {12, 4, 3, true, true, 42, 5, {2, 8, 10}},
    {10, 3, 1, true, false, 42, 7, {3, 4, 1, 0}},
    {7, 2, 1, true, false, 0, 1, {6, 3, 2, 0}},
    {3, 8, 7, true, false, 1, 2, {0}},
    {3, 8, 2, true, true, 1, 2, {}},
    {2, 7, 6, false, false, 0, 0, {0}},
    {10, 4, 1, false, false, 0, 0, {1, 5, 9}},
    {10, 4, 1, false, true, 0, 0, {1, 5}},
    {9, 2, 0, true, false, 1099511627776, 3, {4, 5, 0, 3, 7}},
    {0, 2, 1, true, true, 0, 0, {}},
    {0, 2, 1, true, false, 0, 0, {}},
};

TEST(DistributedSampler, GivesPythonsLists) {
  for (const auto& each : kPythonsLists) {
    const auto sampler = make_sampler(each);
    EXPECT_EQ(sampler.indices(), each.expected) << each.num_samples << " samples, rank " << each.rank << " of " << each.world_size;
    EXPECT_EQ(sampler.num_samples_per_rank(), static_cast<int64_t>(each.expected.size()));
  }
}

// Python, from the same lines: x = list(s); print(x[:6], len(x), sum((i + 1) * v for i, v in enumerate(x)))
TEST(DistributedSampler, GivesPythonsListOfCifarSize) {
  const auto indices = make_sampler({50000, 4, 3, true, false, 42, 7, {}}).indices();
  ASSERT_EQ(indices.size(), 12500U);
  EXPECT_EQ(std::vector<int64_t>(indices.begin(), indices.begin() + 6), (std::vector<int64_t>{24030, 28341, 30902, 24095, 5825, 23497}));
  int64_t weighted_sum = 0;
  for (size_t i = 0; i < indices.size(); ++i) weighted_sum += static_cast<int64_t>(i + 1) * indices[i];
  EXPECT_EQ(weighted_sum, 1958203819910);
}

TEST(DistributedSampler, RanksTogetherTakeEachSampleOnceWhenTheyDivide) {
  std::vector<int64_t> all;
  for (int rank = 0; rank < 5; ++rank) {
    const auto part = make_sampler({100, 5, rank, true, false, 3, 1, {}}).indices();
    all.insert(all.end(), part.begin(), part.end());
  }
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), 100U);
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], i);
}

TEST(DistributedSampler, RefusesARankOutsideTheWorld) {
  EXPECT_ANY_THROW(DistributedSampler({.num_samples = 4, .rank = 2, .world_size = 2}));
  EXPECT_ANY_THROW(DistributedSampler({.num_samples = 4, .rank = -1, .world_size = 2}));
}

}  // namespace
}  // namespace trainer::input
