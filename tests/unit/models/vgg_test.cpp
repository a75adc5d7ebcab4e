#include <gtest/gtest.h>

#include "tests/unit/models/build_model.h"

namespace trainer::models::test {
namespace {

std::shared_ptr<Model> build_with_thousand_classes(const std::string& name, const BuildContext& context = make_context()) {
  return build(name, "num_classes: 1000", context);
}

TEST(Vgg, HasTorchvisionsParameterCountNamesAndShapes) {
  const auto model = build_with_thousand_classes("vgg16_bn");
  EXPECT_EQ(count_parameters(*model), 138365992);
  EXPECT_EQ(state_names(*model), torchvision_names("vgg16_bn"));
}

TEST(Vgg, ImagenetHeadTrainsAndStartsWithTorchvisionsValues) {
  BuildContext context = make_context();
  const auto model = build_with_thousand_classes("vgg11_bn", context);
  EXPECT_EQ(count_parameters(*model), 132868840);
  EXPECT_EQ(model->input_shape(), (std::vector<int64_t>{3, -1, -1}));
  const auto weights = model->named_parameters();
  const double std = std::sqrt(2.0 / (512 * 9));
  EXPECT_NEAR(weights["features.25.weight"].std().item<double>(), std, 0.02 * std);
  EXPECT_NEAR(weights["classifier.3.weight"].std().item<double>(), 0.01, 1e-4);
  for (const auto& item : weights) {
    if (!item.key().ends_with("bias")) continue;
    EXPECT_TRUE((item.value() == 0).all().item<bool>()) << item.key();
  }

  const torch::Tensor dropout_state = context.dropout_generator.get_state();
  const torch::Tensor output = model->forward(random_images(2));
  EXPECT_FALSE(at::equal(context.dropout_generator.get_state(), dropout_state));
  EXPECT_EQ(output.sizes(), (std::vector<int64_t>{2, 1000}));
  output.square().mean().backward();
  for (const auto& item : weights) EXPECT_TRUE(item.value().grad().defined()) << item.key();
}

TEST(Vgg, CifarHeadIsOneLinearLayer) {
  const auto model = build("vgg16_bn", "head: cifar");
  EXPECT_EQ(model->input_shape(), (std::vector<int64_t>{3, 32, 32}));
  const std::vector<std::string> names = state_names(*model);
  EXPECT_EQ(names[names.size() - 2], "classifier.1.weight 10x512");
  EXPECT_EQ(count_parameters(*model), 14728266);
}

TEST(Vgg, DropoutFollowsItsGenerator) {
  BuildContext context = make_context();
  const auto model = build("vgg11_bn", "head: cifar", context);
  expect_dropout_follows_generator(*model, context);
}

}  // namespace
}  // namespace trainer::models::test
