#include <gmock/gmock.h>

#include "trainer/error.h"
#include "trainer/state.h"
#include "trainer/torch.h"

namespace trainer::state {
namespace {

using testing::ElementsAre;
using testing::ThrowsMessage;

Tree make_tree() {
  Dict momentum;
  momentum.add("momentum_buffer", torch::ones({2, 3}));
  Dict parameters;
  parameters.add(int64_t{0}, std::move(momentum));
  Dict root;
  root.add("step", 7);
  root.add("lr", 0.5);
  root.add("done", true);
  root.add("name", "resnet18");
  root.add("scaler", Tree());
  root.add("groups", List{1, 2});
  root.add("state", std::move(parameters));
  return root;
}

// Expects that the call throws an error with this message.
template <typename Call>
auto throws(Call call, const std::string& message) {
  EXPECT_THAT(call, ThrowsMessage<CheckpointError>(message));
}

TEST(View, ReadsWrittenValues) {
  const auto tree = make_tree();
  const View view(tree, "a.pt");
  EXPECT_EQ(view.at("step").integer(), 7);
  EXPECT_EQ(view.at("step").number(), 7.0);
  EXPECT_EQ(view.at("lr").number(), 0.5);
  EXPECT_TRUE(view.at("done").flag());
  EXPECT_EQ(view.at("name").text(), "resnet18");
  EXPECT_TRUE(view.at("scaler").is_none());
  EXPECT_FALSE(view.at("name").is_none());
  EXPECT_EQ(view.at("groups").elements().at(1).integer(), 2);
  EXPECT_FALSE(view.find("ema"));
  EXPECT_THAT(view.at("state").keys(), ElementsAre(Key(int64_t{0})));
  auto buffer = torch::zeros({2, 3});
  view.at("state").at(int64_t{0}).at("momentum_buffer").copy_to(buffer);
  EXPECT_TRUE(buffer.equal(torch::ones({2, 3})));
}

TEST(View, ErrorsStateProblemAndPosition) {
  const auto tree = make_tree();
  const View view(tree, "a.pt");
  const auto momentum = view.at("state").at(int64_t{0});
  throws([&] { view.at("ema"); }, "a.pt: has no \"ema\"");
  throws([&] { momentum.at("exp_avg"); }, "a.pt: state.0: has no \"exp_avg\"");
  throws([&] { view.at("lr").integer(); }, "a.pt: lr: is a number, not an integer");
  throws([&] { view.at("name").number(); }, "a.pt: name: is a string, not a number");
  throws([&] { view.at("step").flag(); }, "a.pt: step: is an integer, not a boolean");
  throws([&] { view.at("state").text(); }, "a.pt: state: is a dictionary, not a string");
  throws([&] { view.at("scaler").tensor(); }, "a.pt: scaler: is nothing, not a tensor");
  throws([&] { view.at("done").elements(); }, "a.pt: done: is a boolean, not a list");
  throws([&] { view.at("groups").at("lr"); }, "a.pt: groups: is a list, not a dictionary");
  throws([&] { view.at("groups").elements().at(0).text(); }, "a.pt: groups[0]: is an integer, not a string");
  const auto buffer = momentum.at("momentum_buffer");
  throws([&] { buffer.keys(); }, "a.pt: state.0.momentum_buffer: is a tensor, not a dictionary");
  throws([&] { buffer.copy_to(torch::zeros({3, 2})); }, "a.pt: state.0.momentum_buffer: is Float[2, 3], but Float[3, 2] is expected");
  throws(
      [&] {
        buffer.copy_to(torch::zeros({2, 3}, torch::kDouble));
      },
      "a.pt: state.0.momentum_buffer: is Float[2, 3], but Double[2, 3] is expected");
}

TEST(Tree, ItsTensorsCanBeExchanged) {
  const auto tree = make_tree();
  ASSERT_EQ(tensors_of(tree).size(), 1U);
  const auto copy = with_tensors(tree, {torch::zeros({1})});
  const View view(copy, "a.pt");
  EXPECT_TRUE(view.at("state").at(int64_t{0}).at("momentum_buffer").tensor().equal(torch::zeros({1})));
  EXPECT_EQ(view.at("name").text(), "resnet18");
  EXPECT_EQ(view.at("groups").elements().at(1).integer(), 2);
  EXPECT_THROW(with_tensors(tree, {torch::zeros({1}), torch::zeros({1})}), c10::Error);
  EXPECT_THROW(with_tensors(tree, {}), c10::Error);
}

}  // namespace
}  // namespace trainer::state
