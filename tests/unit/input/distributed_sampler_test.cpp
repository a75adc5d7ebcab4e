#include "input/distributed_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

namespace trainer::input {
namespace {

// The lists of tests/golden/sampler_orders.json.
TEST(DistributedSampler, GivesPythonsLists) {
  const auto document = nlohmann::json::parse(std::ifstream(TRAINER_SOURCE_DIR "/tests/golden/sampler_orders.json"));
  ASSERT_GE(document.at("cases").size(), 50U);
  for (auto each : document.at("cases")) {
    const auto orders = each.at("orders");
    each.erase("orders");
    const int world_size = each.at("world_size");
    ASSERT_EQ(orders.size(), static_cast<size_t>(world_size));
    for (int rank = 0; rank < world_size; ++rank) {
      const auto what = each.dump() + ", rank " + std::to_string(rank);
      DistributedSampler sampler({.num_samples = each.at("num_samples"),
                                  .rank = rank,
                                  .world_size = world_size,
                                  .shuffle = each.at("shuffle"),
                                  .shards = each.at("drop_last").get<bool>() ? config::Shards::kDrop : config::Shards::kPad,
                                  .seed = each.at("seed")});
      sampler.set_epoch(each.at("epoch"));
      const auto indices = sampler.indices();
      const auto& expected = orders.at(static_cast<size_t>(rank));
      ASSERT_EQ(indices.size(), expected.at("length").get<size_t>()) << what;
      const auto head = expected.at("head").get<std::vector<int64_t>>();
      EXPECT_TRUE(std::equal(head.begin(), head.end(), indices.begin())) << what;
      int64_t weighted_sum = 0;
      for (size_t i = 0; i < indices.size(); ++i) weighted_sum += static_cast<int64_t>(i + 1) * indices[i];
      EXPECT_EQ(weighted_sum, expected.at("weighted_sum").get<int64_t>()) << what;
    }
  }
}

TEST(DistributedSampler, RanksTogetherVisitEachSampleOnceWhenTheWorldSizeDivides) {
  std::vector<int64_t> all;
  for (int rank = 0; rank < 5; ++rank) {
    DistributedSampler sampler({.num_samples = 100, .rank = rank, .world_size = 5, .seed = 3});
    sampler.set_epoch(1);
    const auto part = sampler.indices();
    all.insert(all.end(), part.begin(), part.end());
  }
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), 100U);
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], i);
}

TEST(DistributedSampler, ExactVisitsEachSampleOnce) {
  for (const int64_t num_samples : {0, 1, 4, 5, 10, 11}) {
    std::vector<int64_t> all;
    for (int rank = 0; rank < 5; ++rank) {
      DistributedSampler sampler({.num_samples = num_samples, .rank = rank, .world_size = 5, .shards = config::Shards::kExact, .seed = 7});
      const auto part = sampler.indices();
      EXPECT_EQ(part.size(), static_cast<size_t>((num_samples - rank + 4) / 5)) << num_samples << " samples, rank " << rank;
      all.insert(all.end(), part.begin(), part.end());
    }
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all.size(), static_cast<size_t>(num_samples));
    for (int64_t i = 0; i < num_samples; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], i);
  }
}

TEST(DistributedSampler, AnotherWorldSizeVisitsTheRestOfAnEpoch) {
  const auto all_ranks = [](int world_size, int64_t first) {
    std::vector<std::vector<int64_t>> parts;
    for (int rank = 0; rank < world_size; ++rank) {
      DistributedSampler sampler({.num_samples = 100, .rank = rank, .world_size = world_size, .seed = 3});
      sampler.set_epoch(2);
      parts.push_back(sampler.indices(first));
    }
    return parts;
  };
  std::vector<int64_t> taken;
  for (const auto& part : all_ranks(2, 0)) taken.insert(taken.end(), part.begin(), part.begin() + 20);
  for (const auto& part : all_ranks(3, 40)) taken.insert(taken.end(), part.begin(), part.end());
  EXPECT_EQ(taken.size(), 100U);
  EXPECT_EQ(std::set(taken.begin(), taken.end()).size(), 100U);

  // Resumed with the same number of ranks, each rank continues its own list; the padding is at the end.
  const auto whole = all_ranks(3, 0);
  const auto rest = all_ranks(3, 60);
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(rest[rank], std::vector(whole[rank].begin() + 20, whole[rank].end()));
    EXPECT_EQ(whole[rank].size(), 34U);
  }
}

TEST(DistributedSampler, RefusesARankOutsideTheWorld) {
  EXPECT_ANY_THROW(DistributedSampler({.num_samples = 4, .rank = 2, .world_size = 2}));
  EXPECT_ANY_THROW(DistributedSampler({.num_samples = 4, .rank = -1, .world_size = 2}));
}

}  // namespace
}  // namespace trainer::input
