#include <gtest/gtest.h>

#include "run/inspection/memory.h"
#include "trainer/torch.h"

namespace trainer::inspection {
namespace {

TEST(AllocationTrace, RecordsWhatTensorsTakeAndReturn) {
  AllocationTrace trace(1, 1);
  auto kept = torch::empty({1024});
  trace.mark();
  torch::empty({4096});
  kept.reset();
  EXPECT_EQ(trace.result().at_mark, 4096);
  EXPECT_EQ(trace.result().peak, 5 * 4096);
  EXPECT_EQ(trace.result().in_use, 0);
}

TEST(AllocationTrace, SeesTheBackwardPassAndEndsWithItsLife) {
  const auto x = torch::ones({1000}, torch::requires_grad());
  Allocations result;
  {
    AllocationTrace trace(1, 1);
    const auto y = x.exp().sum();
    trace.mark();
    y.backward();
    result = trace.result();
  }
  const auto after = torch::empty({1000});
  EXPECT_GE(result.at_mark, 4000);
  EXPECT_GE(result.peak, 8000);
  EXPECT_LT(result.peak, 20000);
}

TEST(AllocationTrace, ScalesWhatBelongsToTheSamples) {
  AllocationTrace trace(11, 50);
  torch::empty({25});                       // the same for any batch
  const auto kept = torch::empty({11, 3});  // 12 bytes for each sample
  trace.mark();
  torch::empty({7});
  EXPECT_EQ(trace.result().at_mark, 50 * 12);
  EXPECT_EQ(trace.result().peak, 50 * 12 + 28);
  EXPECT_EQ(trace.result().in_use, 50 * 12);
}

}  // namespace
}  // namespace trainer::inspection
