#include <gtest/gtest.h>

#include <cstdint>

#include "base/text.h"

namespace trainer {
namespace {

TEST(Plural, OneHasTheSingular) {
  EXPECT_EQ(counted(1, "epoch"), "1 epoch");
  EXPECT_EQ(counted(0, "epoch"), "0 epochs");
  EXPECT_EQ(counted(uint64_t{12}, "tensor"), "12 tensors");
  EXPECT_EQ(counted(1, "entry", "entries"), "1 entry");
  EXPECT_EQ(counted(2, "entry", "entries"), "2 entries");
}

}  // namespace
}  // namespace trainer
