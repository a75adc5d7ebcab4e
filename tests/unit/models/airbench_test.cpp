#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/models/build_model.h"
#include "trainer/error.h"

namespace trainer::models::test {
namespace {

// Images whose neighbouring pixels and channels are correlated, like those of photographs.
torch::Tensor smooth_images(int64_t count) {
  const auto noise = random_images(count, 8);
  const auto large = at::upsample_bilinear2d(noise, {32, 32}, /*align_corners=*/false);
  return large + 0.5 * large.mean(1, /*keepdim=*/true) + 0.1 * random_images(count);
}

// The values of all 2×2 patches, [N, 12].
torch::Tensor patches_of(const torch::Tensor& images) {
  return images.unfold(2, 2, 1).unfold(3, 2, 1).permute({0, 2, 3, 1, 4, 5}).reshape({-1, 12});
}

TEST(Airbench, HasTheOriginalsParameterCount) {
  // The parameters: six convolutions, the biases of six norms and of the first layer, and the last layer.
  const int64_t convolutions = 9 * (24 * 64 + 64 * 64 + 64 * 256 + 3 * 256 * 256);
  EXPECT_EQ(count_parameters(*build("airbench")), convolutions + 2 * (64 + 256 + 256) + 24 + 256 * 10);
}

TEST(Airbench, FitMakesTheFirstChannelsUncorrelated) {
  const auto model = build("airbench");
  const auto images = smooth_images(600);
  ASSERT_EQ(model->num_fitted_images(), 5000);
  model->fit(images);
  const auto filters = model->named_buffers()["whiten.weight"].reshape({24, 12});
  const auto outputs = at::mm(patches_of(images).to(torch::kFloat64), filters.narrow(0, 0, 12).t().to(torch::kFloat64));
  const auto moments = at::mm(outputs.t(), outputs) / outputs.size(0);
  // The variance is less than 1 by eps relative to the eigenvalue; the smallest eigenvalue is about 0.01.
  EXPECT_LT((moments - torch::eye(12, torch::kFloat64)).abs().max().item<double>(), 0.06);
  EXPECT_LT((moments - at::diag(moments.diagonal())).abs().max().item<double>(), 1e-5);
  // The direction of the largest variance is the mean of the patch, which is the first filter.
  EXPECT_GT(filters[0].mean().abs().item<double>(), 0.9 * filters[0].abs().mean().item<double>());
  EXPECT_TRUE(at::equal(filters.narrow(0, 12, 12), -filters.narrow(0, 0, 12)));
}

TEST(Airbench, FitIsTheSameInAnyTypeAndLayoutOfImages) {
  const auto images = smooth_images(8);
  const auto model = build("airbench");
  model->fit(images);
  const auto again = build("airbench");
  again->to(torch::kFloat64);
  again->fit(images.to(torch::kFloat64).contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(at::allclose(again->named_buffers()["whiten.weight"].to(torch::kFloat32), model->named_buffers()["whiten.weight"], 1e-5));
}

TEST(Airbench, ConvolutionsStartAsTheIdentity) {
  const auto weights = build("airbench")->named_parameters();
  const auto input = random_images(1).narrow(1, 0, 1).expand({1, 64, 32, 32}) * torch::arange(1, 65).view({1, 64, 1, 1});
  const auto output = at::conv2d(input, weights["block2.conv1.weight"], {}, 1, 1);
  EXPECT_TRUE(at::equal(output.narrow(1, 0, 64), input));
  const double bound = 1 / std::sqrt(64 * 9);
  EXPECT_LE(weights["block2.conv1.weight"].narrow(0, 64, 192).abs().max().item<double>(), bound);
}

TEST(Airbench, StartsWithOutputsOfTheLastLayersScale) {
  const auto weight = build("airbench")->named_parameters()["head.weight"];
  EXPECT_NEAR(weight.std().item<double>(), 1, 1e-5);
}

TEST(Airbench, TakesThreeWidths) {
  EXPECT_EQ(build("airbench", "widths: [16, 8, 24]")->forward(random_images(2)).sizes(), (std::vector<int64_t>{2, 10}));
  const auto refused = [] { build("airbench", "widths: [64, 256]"); };
  EXPECT_THAT(refused, ::testing::ThrowsMessage<std::exception>(::testing::HasSubstr("widths: [64, 256] has 2 values; give three")));
}

}  // namespace
}  // namespace trainer::models::test
