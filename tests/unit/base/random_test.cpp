#include "trainer/random.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace trainer {
namespace {

using Block = std::array<uint32_t, 4>;

// The known answers of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

std::vector<uint32_t> draw(CounterRandom random, int count = 9) {
  std::vector<uint32_t> values;
  for (int i = 0; i < count; ++i) values.push_back(random.next_uint32());
  return values;
}

TEST(CounterRandom, IsAFunctionOfItsKey) {
  EXPECT_EQ(draw({1, 2, 3}), draw({1, 2, 3}));
  std::set<std::vector<uint32_t>> streams;
  for (const auto& [seed, stream, substream] : std::vector<std::tuple<uint64_t, uint64_t, uint32_t>>{
           {1, 2, 3}, {2, 2, 3}, {1, 3, 3}, {1, 2, 4}, {1ULL << 40, 2, 3}, {1, 1ULL << 40, 3}}) {
    streams.insert(draw({seed, stream, substream}));
  }
  EXPECT_EQ(streams.size(), 6U);
}

TEST(CounterRandom, RangesAndFrequencies) {
  CounterRandom random(7, 0);
  std::array<int, 9> counts{};
  int num_true = 0;
  for (int i = 0; i < 90'000; ++i) {
    ++counts[random.next_below(9)];
    num_true += random.next_bool(0.25) ? 1 : 0;
    const float value = random.next_float();
    ASSERT_GE(value, 0.0F);
    ASSERT_LT(value, 1.0F);
  }
  // Six standard deviations of the binomial counts.
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 570);
  EXPECT_NEAR(num_true, 22'500, 780);
  EXPECT_EQ(random.next_below(1), 0U);
  EXPECT_FALSE(random.next_bool(0.0));
  EXPECT_TRUE(random.next_bool(1.0));
}

TEST(MixSeed, ChangesWithEachPart) {
  const std::set<uint64_t> seeds = {mix_seed(1, 2, 3), mix_seed(2, 2, 3), mix_seed(1, 3, 3), mix_seed(1, 2, 4), mix_seed(1, 3, 2)};
  EXPECT_EQ(seeds.size(), 5U);
}

}  // namespace
}  // namespace trainer
