#include <gtest/gtest.h>

#include "tests/unit/models/build_model.h"
#include "trainer/error.h"

namespace trainer::models::test {
namespace {

TEST(ResNet, HasTorchvisionsParameterCountsNamesAndShapes) {
  const std::vector<std::pair<std::string, int64_t>> networks = {
      {"resnet18", 11689512}, {"resnet34", 21797672}, {"resnet50", 25557032}, {"resnet101", 44549160}, {"resnet152", 60192808}};
  for (const auto& [name, num_parameters] : networks) {
    const auto model = build(name, "num_classes: 1000");
    EXPECT_EQ(count_parameters(*model), num_parameters) << name;
  }
  EXPECT_EQ(state_names(*build("resnet18", "num_classes: 1000")), torchvision_names("resnet18"));
}

TEST(ResNet, StartsWithTorchvisionsValues) {
  const auto model = build("resnet18");
  const auto near_std = [](const torch::Tensor& weight, double std) { EXPECT_NEAR(weight.std().item<double>(), std, 0.02 * std); };
  const auto weights = model->named_parameters();
  near_std(weights["conv1.weight"], std::sqrt(2.0 / (64 * 49)));
  near_std(weights["layer2.0.conv1.weight"], std::sqrt(2.0 / (128 * 9)));
  near_std(weights["layer4.0.downsample.0.weight"], std::sqrt(2.0 / 512));
  EXPECT_NEAR(weights["fc.weight"].abs().max().item<double>(), 1.0 / std::sqrt(512.0), 1e-3);
  for (const auto& item : weights) {
    const bool is_norm = item.key().find("bn") != std::string::npos || item.key().find("downsample.1") != std::string::npos;
    if (!is_norm) continue;
    const double expected = item.key().ends_with("weight") ? 1.0 : 0.0;
    EXPECT_TRUE((item.value() == expected).all().item<bool>()) << item.key();
  }
}

TEST(ResNet, ZeroInitLastNormChangesOnlyTheLastNormOfEachBlock) {
  for (const auto& [name, last_norm] : {std::pair{"resnet18", ".bn2.weight"}, std::pair{"resnet50", ".bn3.weight"}}) {
    const auto model = build(name, "zero_init_last_norm: true");
    for (const auto& item : model->named_parameters()) {
      if (!item.key().ends_with("weight")) continue;
      EXPECT_EQ((item.value() == 0).all().item<bool>(), item.key().ends_with(last_norm)) << name << " " << item.key();
      EXPECT_TRUE(item.value().requires_grad());
    }
  }
}

TEST(ResNet, CifarStemKeepsTheSize) {
  const auto cifar = build("resnet18", "stem: cifar");
  EXPECT_EQ(cifar->input_shape(), (std::vector<int64_t>{3, -1, -1}));
  EXPECT_EQ(cifar->named_parameters()["conv1.weight"].sizes(), (std::vector<int64_t>{64, 3, 3, 3}));
  EXPECT_EQ(count_parameters(*cifar), 11173962);
  // The last stage gets 32 / 8 = 4 pixels per side, so even one image can be trained on; with the imagenet stem it gets one pixel.
  EXPECT_EQ(cifar->forward(random_images(1)).sizes(), (std::vector<int64_t>{1, 10}));

  const auto imagenet = build("resnet18");
  EXPECT_EQ(imagenet->input_shape(), (std::vector<int64_t>{3, -1, -1}));
  EXPECT_THROW(imagenet->forward(random_images(1)), UsageError);
  EXPECT_EQ(imagenet->forward(random_images(1, 64)).sizes(), (std::vector<int64_t>{1, 10}));
}

TEST(ResNet, DropoutActsInTrainingAndFollowsItsGenerator) {
  BuildContext context = make_context();
  const auto model = build("resnet18", "dropout: 0.5", context);
  expect_dropout_follows_generator(*model, context);
}

}  // namespace
}  // namespace trainer::models::test
