#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/data.h"

namespace trainer::data::test {
namespace {

using ::testing::ElementsAre;

std::vector<size_t> all_of(DistributedSampler& sampler, size_t batch_size = 3) {
  std::vector<size_t> all;
  sampler.reset();
  while (const auto batch = sampler.next(batch_size)) all.insert(all.end(), batch->begin(), batch->end());
  return all;
}

// The indices printed by torch.utils.data.DistributedSampler(range(10), num_replicas=4, rank=rank, seed=7) after set_epoch(2).
TEST(DistributedSampler, HasPythonsOrder) {
  DistributedSampler first(10, 0, 4, {.seed = 7}), last(10, 3, 4, {.seed = 7});
  first.set_epoch(2);
  last.set_epoch(2);
  EXPECT_THAT(all_of(first), ElementsAre(0, 6, 4));
  EXPECT_THAT(all_of(last), ElementsAre(7, 1, 5));
}

TEST(DistributedSampler, SharesWhatCannotBeDividedAsAsked) {
  const auto of_rank = [](int rank, Shards shards) {
    DistributedSampler sampler(5, rank, 2, {.shuffle = false, .shards = shards});
    auto samples = all_of(sampler);
    EXPECT_EQ(static_cast<int64_t>(samples.size()), sampler.size());
    return samples;
  };
  EXPECT_THAT(of_rank(1, Shards::kPad), ElementsAre(1, 3, 0));
  EXPECT_THAT(of_rank(0, Shards::kDrop), ElementsAre(0, 2));
  EXPECT_THAT(of_rank(0, Shards::kExact), ElementsAre(0, 2, 4));
  EXPECT_THAT(of_rank(1, Shards::kExact), ElementsAre(1, 3));
}

TEST(DistributedSampler, ResumesWithinAnEpoch) {
  DistributedSampler sampler(12, 1, 2), resumed(12, 1, 2), loaded(12, 1, 2);
  sampler.set_epoch(3);
  const auto all = all_of(sampler);
  sampler.reset();
  sampler.next(4);
  std::stringstream stream;
  torch::serialize::OutputArchive output;
  sampler.save(output);
  output.save_to(stream);
  torch::serialize::InputArchive input;
  input.load_from(stream);
  loaded.load(input);
  resumed.set_epoch(3);
  resumed.skip(4);
  EXPECT_THAT(all_of(resumed), ElementsAre(all[4], all[5]));
  EXPECT_THAT(all_of(loaded), ElementsAre(all[4], all[5]));
  // The next epoch is complete.
  EXPECT_EQ(all_of(resumed).size(), all.size());
}

}  // namespace
}  // namespace trainer::data::test
