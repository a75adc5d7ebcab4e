#include <gtest/gtest.h>

#include "checkpoint/state/names.h"
#include "trainer/state.h"

namespace trainer::state {
namespace {

TEST(IsIn, ANameCoversWhatIsBelowIt) {
  const std::vector<std::string> names = {"layer1", "fc.bias"};
  for (const char* entry : {"layer1", "layer1.0.conv1.weight", "fc.bias"}) EXPECT_TRUE(is_in(entry, names)) << entry;
  for (const char* entry : {"layer10", "layer10.0.weight", "layer", "fc", "fc.weight", "0.layer1", ""})
    EXPECT_FALSE(is_in(entry, names)) << entry;
  EXPECT_FALSE(is_in("layer1", {}));
}

}  // namespace
}  // namespace trainer::state
