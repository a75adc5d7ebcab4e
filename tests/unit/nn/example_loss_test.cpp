// The loss of docs/extending.md.

#include <gtest/gtest.h>

#include "tests/testing/read_component.h"
#include "tests/testing/shown_in_docs.h"
#include "trainer/nn.h"

namespace trainer::nn::test {
namespace {

#include "tests/examples/huber.cpp"

TEST(ExampleLoss, IsTheHuberLoss) {
  LossRegistry registry("loss");
  registry.add<HuberOptions>("huber", "Squared difference up to delta, then linear.",
                             [](const auto& options) { return std::make_unique<Huber>(options.delta); });
  const auto loss = registry.make(trainer::testing::read_component(registry, "{name: huber, delta: 2}"));
  EXPECT_FLOAT_EQ((*loss)(torch::tensor({1.0, 5.0}), torch::zeros({2})).item<float>(), (0.5F + 2.0F * (5.0F - 1.0F)) / 2.0F);
}

TEST(ExampleLoss, EqualsTheCodeInTheDocs) { EXPECT_TRUE(trainer::testing::is_shown_in_docs("huber.cpp")); }

}  // namespace
}  // namespace trainer::nn::test
