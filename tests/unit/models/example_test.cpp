// The model of docs/extending.md.

#include <gtest/gtest.h>

#include "tests/examples/perceptron.cpp"
#include "tests/testing/shown_in_docs.h"
#include "tests/unit/models/build_model.h"

namespace trainer::models::test {
namespace {

TEST(ExampleModel, IsBuiltFromItsOptionsAndTrains) {
  ModelRegistry registry("model");
  add_perceptron(registry);
  const auto component = trainer::testing::read_component(registry, "{name: perceptron, num_classes: 3, hidden_features: 8}");
  const auto model = registry.make(component, make_context());
  EXPECT_EQ(state_names(*model), (std::vector<std::string>{"hidden.weight 8x3072", "hidden.bias 8", "output.weight 3x8", "output.bias 3"}));
  EXPECT_EQ(model->num_outputs(), 3);
  const torch::Tensor output = model->forward(random_images(2));
  EXPECT_EQ(output.sizes(), (std::vector<int64_t>{2, 3}));
  output.square().mean().backward();
  for (const auto& item : model->named_parameters()) EXPECT_TRUE(item.value().grad().defined()) << item.key();
}

TEST(ExampleModel, EqualsTheCodeInTheDocs) { EXPECT_TRUE(trainer::testing::is_shown_in_docs("perceptron.cpp")); }

}  // namespace
}  // namespace trainer::models::test
