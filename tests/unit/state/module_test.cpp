#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/state/names.h"
#include "trainer/error.h"
#include "trainer/state.h"
#include "trainer/torch.h"

namespace trainer::state {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(IsIn, ANameCoversWhatIsBelowIt) {
  const std::vector<std::string> names = {"layer1", "fc.bias"};
  for (const char* entry : {"layer1", "layer1.0.conv1.weight", "fc.bias"}) EXPECT_TRUE(is_in(entry, names)) << entry;
  for (const char* entry : {"layer10", "layer10.0.weight", "layer", "fc", "fc.weight", "0.layer1", ""})
    EXPECT_FALSE(is_in(entry, names)) << entry;
  EXPECT_FALSE(is_in("layer1", {}));
}

TEST(RandomState, ContinuesTheNumbers) {
  torch::manual_seed(3);
  torch::rand({5});
  const Tree saved(random_state());
  const auto expected = torch::rand({4});
  torch::manual_seed(4);
  load_random_state(View(saved, "a.pt"));
  EXPECT_TRUE(torch::rand({4}).equal(expected));
  Dict damaged;
  damaged.add("cpu", torch::zeros({3}, torch::kByte));
  const Tree other(std::move(damaged)), empty{Dict()};
  EXPECT_THAT([&] { load_random_state(View(other, "a.pt")); },
              ThrowsMessage<CheckpointError>(HasSubstr("a.pt: cpu: is not the state of this generator of random numbers")));
  EXPECT_THAT([&] { load_random_state(View(empty, "a.pt")); }, ThrowsMessage<CheckpointError>(HasSubstr("cpu")));
}

}  // namespace
}  // namespace trainer::state
