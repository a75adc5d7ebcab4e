#include "data/dataset.h"

#include <gtest/gtest.h>

namespace trainer::data {
namespace {

TEST(EvenlySpaced, CoversTheWhole) {
  EXPECT_EQ(evenly_spaced(0, 5), std::vector<int64_t>());
  EXPECT_EQ(evenly_spaced(3, 5), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(evenly_spaced(10, 4), (std::vector<int64_t>{0, 2, 5, 7}));
}

}  // namespace
}  // namespace trainer::data
