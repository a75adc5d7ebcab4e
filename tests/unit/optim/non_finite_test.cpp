#include <gtest/gtest.h>

#include <limits>

#include "train/optim/optimizer.h"

namespace trainer::optim {
namespace {

torch::Tensor with_gradient(torch::Tensor gradient) {
  auto parameter = torch::zeros_like(gradient).set_requires_grad(true);
  parameter.mutable_grad() = std::move(gradient);
  return parameter;
}

float found(const std::vector<torch::Tensor>& parameters) { return find_non_finite(parameters).item<float>(); }

TEST(FindNonFinite, FindsNonFiniteValuesAtAnyPositionOfAnyType) {
  // Long enough for several threads; the size is not a multiple of the vector width.
  constexpr int64_t kSize = 200'003;
  for (const auto dtype : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    for (const double bad : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::quiet_NaN()}) {
      for (const int64_t place : {int64_t{0}, kSize / 2, kSize - 1}) {
        auto gradient = torch::randn({kSize}, dtype);
        EXPECT_EQ(found({with_gradient(torch::ones({3}, dtype)), with_gradient(gradient)}), 0) << dtype;
        gradient[place] = bad;
        EXPECT_EQ(found({with_gradient(torch::ones({3}, dtype)), with_gradient(gradient)}), 1) << dtype << " " << bad << " " << place;
      }
    }
  }
}

TEST(FindNonFinite, TheLargestNumbersAreFinite) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    const double largest = dtype == torch::kFloat32 ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
    EXPECT_EQ(found({with_gradient(torch::full({40}, largest, dtype))}), 0);
    EXPECT_EQ(found({with_gradient(torch::full({40}, -largest, dtype))}), 0);
  }
}

TEST(FindNonFinite, HandlesOtherLayoutsAndMissingGradients) {
  auto gradient = torch::zeros({4, 3, 5, 5}).contiguous(torch::MemoryFormat::ChannelsLast);
  gradient[3][2][4][4] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(found({with_gradient(gradient)}), 1);
  // Memory between the elements of a view does not belong to it.
  auto whole = torch::zeros({8});
  whole[1] = std::numeric_limits<float>::quiet_NaN();
  auto parameter = torch::zeros({4}).set_requires_grad(true);
  parameter.mutable_grad() = whole.slice(0, 0, 8, 2);
  EXPECT_EQ(found({parameter}), 0);
  EXPECT_EQ(found({torch::zeros({3}).set_requires_grad(true)}), 0);
}

}  // namespace
}  // namespace trainer::optim
