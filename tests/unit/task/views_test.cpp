#include <gtest/gtest.h>

#include "train/task/task.h"

namespace trainer::task {
namespace {

torch::Tensor random_images(int64_t count = 2) {
  return torch::rand({count, 3, 5, 7}, at::make_generator<at::CPUGeneratorImpl>(1), torch::kFloat64);
}

// A network that is not linear, so that the mean of outputs differs from the output of the mean.
torch::Tensor network(const torch::Tensor& images) {
  const auto weight = torch::rand({3 * 5 * 7, 4}, at::make_generator<at::CPUGeneratorImpl>(2), torch::kFloat64);
  return (images.to(torch::kFloat64).flatten(1).matmul(weight)).square();
}

// The images shifted down and right by these numbers of pixels, which may be negative; pixels from outside are reflected at the edge.
torch::Tensor shifted(const torch::Tensor& images, int64_t by) {
  const auto sources = [by](int64_t size) {
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < size; ++i) {
      const int64_t from = i - by;
      indices.push_back(from < 0 ? -from : from >= size ? 2 * size - 2 - from : from);
    }
    return torch::tensor(indices);
  };
  return images.index_select(2, sources(images.size(2))).index_select(3, sources(images.size(3)));
}

TEST(Views, OutputsAreAveraged) {
  const auto images = random_images();
  const auto both_sides = [](const torch::Tensor& view) { return (network(view) + network(view.flip({3}))) / 2; };
  EXPECT_TRUE(torch::equal(average_over_views(images, TestTimeAugmentation::kNone, network), network(images)));
  const auto flip = both_sides(images);
  EXPECT_TRUE(torch::allclose(average_over_views(images, TestTimeAugmentation::kFlip, network), flip, 1e-12, 0));
  const auto shifts = (both_sides(shifted(images, 1)) + both_sides(shifted(images, -1))) / 2;
  EXPECT_TRUE(torch::allclose(average_over_views(images, TestTimeAugmentation::kFlipAndShift, network), flip / 2 + shifts / 2, 1e-12, 0));
}

TEST(Views, ANetworkThatTreatsBothSidesAlikeGivesTheSameOutputs) {
  const auto images = random_images();
  const auto largest_of_rows = [](const torch::Tensor& view) { return view.amax(3).flatten(1); };
  EXPECT_TRUE(torch::equal(average_over_views(images, TestTimeAugmentation::kFlip, largest_of_rows), largest_of_rows(images)));
}

TEST(Views, HaveTheDtypeAndMemoryFormatOfTheImages) {
  const std::vector<std::pair<TestTimeAugmentation, int>> view_counts = {
      {TestTimeAugmentation::kNone, 1}, {TestTimeAugmentation::kFlip, 2}, {TestTimeAugmentation::kFlipAndShift, 6}};
  for (const auto dtype : {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kFloat16}) {
    for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
      const auto images = random_images().to(dtype).contiguous(format);
      for (const auto& [tta, num_views] : view_counts) {
        int count = 0;
        average_over_views(images, tta, [&](const torch::Tensor& view) {
          ++count;
          EXPECT_EQ(view.scalar_type(), dtype);
          EXPECT_EQ(view.sizes(), images.sizes());
          EXPECT_TRUE(view.is_contiguous(format)) << format << " " << dtype;
          return network(view);
        });
        EXPECT_EQ(count, num_views);
      }
    }
  }
}

TEST(Views, OutputsOfLowPrecisionAreAveragedInFloat32) {
  const auto images = random_images();
  const auto in_bfloat16 = [](const torch::Tensor& view) { return network(view).to(torch::kBFloat16); };
  const auto outputs = average_over_views(images, TestTimeAugmentation::kFlip, in_bfloat16);
  EXPECT_EQ(outputs.scalar_type(), torch::kFloat32);
  EXPECT_TRUE(torch::equal(outputs, (in_bfloat16(images).to(torch::kFloat32) + in_bfloat16(images.flip({3})).to(torch::kFloat32)) / 2));
}

TEST(Views, OfAnEmptyBatchGiveNoOutputs) {
  const auto images = random_images(0);
  for (const auto tta : {TestTimeAugmentation::kNone, TestTimeAugmentation::kFlip, TestTimeAugmentation::kFlipAndShift}) {
    EXPECT_EQ(average_over_views(images, tta, network).sizes(), (std::vector<int64_t>{0, 4}));
  }
}

}  // namespace
}  // namespace trainer::task
