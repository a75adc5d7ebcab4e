#include "data/sharded_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/unit/data/counting_images.h"
#include "tests/unit/data/sampler_cases.h"

namespace trainer::data {
namespace {

// A sampler in the order of the data set.
Sampler in_order(int64_t num_samples) {
  return {num_samples, [num_samples](int64_t) { return first_indices(num_samples); }};
}

ShardedSampler make_shuffled(int64_t num_samples, uint64_t seed, const ShardOptions& options) {
  return {make_sampler("{name: shuffled}", LabelledSamples(num_samples), seed), options};
}

// The lists of tests/golden/sampler_orders.json.
TEST(ShardedSampler, GivesPythonsLists) {
  const auto cases = golden_orders("cases");
  ASSERT_GE(cases.size(), 50U);
  for (const auto& each : cases) {
    const int world_size = each.at("world_size");
    for (int rank = 0; rank < world_size; ++rank) {
      const ShardOptions options{
          .rank = rank, .world_size = world_size, .shards = each.at("drop_last").get<bool>() ? data::Shards::kDrop : data::Shards::kPad};
      const int64_t num_samples = each.at("num_samples");
      auto sampler = each.at("shuffle").get<bool>() ? make_shuffled(num_samples, each.at("seed"), options)
                                                    : ShardedSampler(in_order(num_samples), options);
      sampler.set_epoch(each.at("epoch"));
      const auto samples = sampler.samples();
      EXPECT_TRUE(samples.occurrences.empty());
      expect_golden(samples.indices, each, rank);
    }
  }
}

TEST(ShardedSampler, RanksTogetherVisitEachSampleOnceWhenTheWorldSizeDivides) {
  std::vector<int64_t> all;
  for (int rank = 0; rank < 5; ++rank) {
    auto sampler = make_shuffled(100, /*seed=*/3, {.rank = rank, .world_size = 5});
    sampler.set_epoch(1);
    const auto part = sampler.samples().indices;
    all.insert(all.end(), part.begin(), part.end());
  }
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), 100U);
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], i);
}

TEST(ShardedSampler, ExactVisitsEachSampleOnce) {
  for (const int64_t num_samples : {0, 1, 4, 5, 10, 11}) {
    std::vector<int64_t> all;
    for (int rank = 0; rank < 5; ++rank) {
      const auto sampler = make_shuffled(num_samples, /*seed=*/7, {.rank = rank, .world_size = 5, .shards = data::Shards::kExact});
      const auto part = sampler.samples().indices;
      EXPECT_EQ(part.size(), static_cast<size_t>((num_samples - rank + 4) / 5)) << num_samples << " samples, rank " << rank;
      all.insert(all.end(), part.begin(), part.end());
    }
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all.size(), static_cast<size_t>(num_samples));
    for (int64_t i = 0; i < num_samples; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], i);
  }
}

TEST(ShardedSampler, AnotherWorldSizeVisitsTheRestOfAnEpoch) {
  const auto all_ranks = [](int world_size, int64_t first) {
    std::vector<std::vector<int64_t>> parts;
    for (int rank = 0; rank < world_size; ++rank) {
      auto sampler = make_shuffled(100, /*seed=*/3, {.rank = rank, .world_size = world_size});
      sampler.set_epoch(2);
      parts.push_back(sampler.samples(first).indices);
    }
    return parts;
  };
  std::vector<int64_t> taken;
  for (const auto& part : all_ranks(2, 0)) taken.insert(taken.end(), part.begin(), part.begin() + 20);
  for (const auto& part : all_ranks(3, 40)) taken.insert(taken.end(), part.begin(), part.end());
  EXPECT_EQ(taken.size(), 100U);
  EXPECT_EQ(std::set(taken.begin(), taken.end()).size(), 100U);

  // With the same number of ranks, each rank continues its own list after a resume; the padding is at the end.
  const auto whole = all_ranks(3, 0);
  const auto rest = all_ranks(3, 60);
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(rest[rank], std::vector(whole[rank].begin() + 20, whole[rank].end()));
    EXPECT_EQ(whole[rank].size(), 34U);
  }
}

TEST(ShardedSampler, OccurrencesAreCountedInTheSharedOrder) {
  // In the order of 20 entries, each sample occurs up to three times in a row. For three ranks, the first entry is repeated at the end.
  const auto make = [](int rank, int world_size) {
    return ShardedSampler(make_sampler("{name: repeated_augmentation, repeats: 3}", LabelledSamples(20), 5),
                          {.rank = rank, .world_size = world_size});
  };
  const auto all = make(0, 1).samples();
  ASSERT_EQ(all.size(), 20U);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].occurrence, i % 3);
  for (const int64_t first : {0, 6}) {
    for (int rank = 0; rank < 3; ++rank) {
      const auto part = make(rank, 3).samples(first);
      EXPECT_EQ(part.size(), first == 0 ? 7U : 5U);
      for (size_t i = 0; i < part.size(); ++i) {
        const auto position = (static_cast<size_t>(first) + i * 3 + static_cast<size_t>(rank)) % 20;
        EXPECT_EQ(part[i].index, all[position].index);
        EXPECT_EQ(part[i].occurrence, all[position].occurrence);
      }
    }
  }
}

TEST(ShardedSampler, RefusesARankOutsideTheWorld) {
  EXPECT_ANY_THROW(make_shuffled(4, 0, {.rank = 2, .world_size = 2}));
  EXPECT_ANY_THROW(make_shuffled(4, 0, {.rank = -1, .world_size = 2}));
}

}  // namespace
}  // namespace trainer::data
