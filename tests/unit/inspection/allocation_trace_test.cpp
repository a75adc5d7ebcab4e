#include <gtest/gtest.h>

#include "run/inspection/memory.h"
#include "trainer/torch.h"

namespace trainer::inspection {
namespace {

TEST(AllocationTrace, RecordsWhatTensorsTakeAndReturn) {
  AllocationTrace trace;
  auto kept = torch::empty({1024});
  trace.mark();
  torch::empty({4096});
  kept.reset();
  EXPECT_EQ(trace.result().at_mark(), 4096);
  EXPECT_EQ(trace.result().peak(), 5 * 4096);
  EXPECT_EQ(trace.result().at_end(), 0);
  EXPECT_EQ(trace.result().changes, (std::vector<int64_t>{4096, 4 * 4096, -4 * 4096, -4096}));
}

TEST(AllocationTrace, SeesTheBackwardPassAndEndsWithItsLife) {
  const auto x = torch::ones({1000}, torch::requires_grad());
  Allocations result;
  {
    AllocationTrace trace;
    const auto y = x.exp().sum();
    trace.mark();
    y.backward();
    result = trace.result();
  }
  const auto after = torch::empty({1000});
  EXPECT_GE(result.at_mark(), 4000);
  EXPECT_GE(result.peak(), 8000);
  EXPECT_LT(result.peak(), 20000);
}

TEST(Extrapolate, ScalesEachAllocationAndFindsTheNewPeak) {
  // Allocates and frees 100 bytes, whatever the number of samples, and then 10 bytes for each sample.
  const auto with = [](int64_t size) { return Allocations{.changes = {100, -100, 10 * size, -10 * size}, .num_before_mark = 3}; };
  const auto result = extrapolate(with(2), 2, with(4), 4, 50);
  EXPECT_EQ(result.changes, with(50).changes);
  EXPECT_EQ(with(4).peak(), 100);
  EXPECT_EQ(result.peak(), 500);
  EXPECT_EQ(result.at_mark(), 500);
}

TEST(Extrapolate, ScalesThePeakIfTheOrderDiffers) {
  const Allocations small{.changes = {20, -20}, .num_before_mark = 1};
  const Allocations large{.changes = {30, 10, -40}, .num_before_mark = 1};
  const auto result = extrapolate(small, 2, large, 4, 10);
  EXPECT_EQ(result.at_mark(), 60);
  EXPECT_EQ(result.peak(), 100);
}

}  // namespace
}  // namespace trainer::inspection
