#include "checkpoint/state/tree_differences.h"

#include <gmock/gmock.h>

#include <limits>

#include "trainer/torch.h"

namespace trainer::state {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Tree tree_with(Tree loss, const torch::Tensor& weight, bool has_more = false) {
  Dict model;
  model.add("weight", weight);
  Dict root;
  root.add("loss", std::move(loss));
  root.add("model", std::move(model));
  root.add("groups", List{1, "sgd"});
  if (has_more) root.add("ema", Tree());
  return root;
}

TEST(Compare, EqualTreesHaveNoDifferences) {
  const auto weight = torch::rand({3, 4});
  weight[0][0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(differences(tree_with(0.5, weight), tree_with(0.5, weight.t().contiguous().t())), IsEmpty());
}

TEST(Compare, EachDifferenceIsNamed) {
  const auto weight = torch::zeros({3, 4});
  auto other = weight.clone();
  other[1][2] = 0.25;
  other[0][0] = -0.0;
  EXPECT_THAT(differences(tree_with(0.5, weight), tree_with(0.75, other, true)),
              ElementsAre("loss: 0.5, not 0.75", "model.weight: 2 of 12 values, by up to 0.25", "ema: only in the second"));
  EXPECT_THAT(differences(tree_with(1, weight, true), tree_with("one", weight.to(torch::kDouble))),
              ElementsAre("loss: 1, not \"one\"", "model.weight: Float[3, 4], not Double[3, 4]", "ema: only in the first"));
  EXPECT_THAT(differences(List{1, 2}, List{1, 3}), ElementsAre("[1]: 2, not 3"));
  const auto config = [](const std::string& rest) {
    Dict root;
    root.add("config", "experiment: demo\n" + rest);
    return root;
  };
  EXPECT_THAT(differences(config("seed: 1\nname: a"), config("seed: 2\nname: b")),
              ElementsAre("config: \"seed: 1\", not \"seed: 2\", in line 2"));
  EXPECT_THAT(differences(config("seed: 1"), config("")), ElementsAre("config: \"seed: 1\", not \"\", in line 2"));
  EXPECT_THAT(differences(config(""), config("")), IsEmpty());
  const std::string long_path(70, '/');
  EXPECT_THAT(differences(List{long_path + "a"}, List{long_path + "b"}),
              ElementsAre("[0]: \"...////////////////////a\", not \"...////////////////////b\""));
  EXPECT_THAT(differences(Dict(), List{1}), ElementsAre(": a dictionary of 0, not a list of 1"));
}

}  // namespace
}  // namespace trainer::state
