#include "inference/weights_by_name.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/file.h"
#include "checkpoint/pytorch_file.h"
#include "tests/testing/string_output.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"
#include "trainer/state.h"

namespace trainer::inference {
namespace {

using ::testing::ThrowsMessage;

struct Net : torch::nn::Module {
  explicit Net(int64_t num_classes = 3, torch::Dtype dtype = torch::kFloat32) {
    register_module("bn", torch::nn::BatchNorm2d(2));
    register_module("fc", torch::nn::Linear(2, num_classes));
    to(dtype);
  }
};

// A state_dict with values that differ from those of a new network.
state::Dict make_state(int64_t num_classes = 3, const std::string& prefix = "", bool with_counter = true) {
  const Net net(num_classes);
  state::Dict dict;
  const auto state = state::state_of(net);
  for (const auto& item : state.items()) {
    const auto name = state::to_string(item.key);
    if (name.ends_with("num_batches_tracked") && !with_counter) continue;
    const auto& tensor = std::get<torch::Tensor>(item.value.value());
    dict.add(prefix + name, (torch::arange(tensor.numel()) + 7).reshape(tensor.sizes()).to(tensor.scalar_type()));
  }
  return dict;
}

// Messages name the file "a.pt".
InitReport report_of(const state::Tree& tree, torch::nn::Module& model, bool strict) {
  testing::StringOutput output;
  checkpoint::write_pytorch_file(tree, output);
  return init_model(checkpoint::read_pytorch_file(testing::as_bytes(output.content()), "a.pt"), "a.pt", strict, model);
}

std::string init_from(const state::Tree& tree, torch::nn::Module& model, bool strict = true) { return report_of(tree, model, strict).text; }

state::Tree as(const std::string& key, state::Dict dict) {
  state::Dict root;
  root.add("epoch", 3);
  root.add(key, std::move(dict));
  return root;
}

void expect_filled(const torch::nn::Module& net) {
  const auto state = state::state_of(net);
  for (const auto& item : state.items()) {
    const auto& tensor = std::get<torch::Tensor>(item.value.value());
    const auto expected = (torch::arange(tensor.numel()) + 7).reshape(tensor.sizes()).to(tensor.scalar_type());
    EXPECT_TRUE(torch::equal(tensor, expected)) << state::to_string(item.key);
  }
}

TEST(InitFrom, ReadsAStateDictInEveryFormThatPythonUsersSave) {
  const std::vector<std::pair<state::Tree, std::string>> forms = {
      {make_state(), ""},
      {as("model", make_state()), " (model)"},
      {as("model_state_dict", make_state()), " (model_state_dict)"},
      {as("ema_state_dict", make_state()), " (ema_state_dict)"},
      {as("network", make_state(3, "net.")), " (network, removed from names: net.)"},
      {as("checkpoint", std::get<state::Dict>(as("state_dict", make_state()).value())), " (checkpoint.state_dict)"},
      {make_state(3, "module."), " (removed from names: module.)"},
      {make_state(3, "_orig_mod."), " (removed from names: _orig_mod.)"},
      {make_state(3, "module._orig_mod.model."), " (removed from names: _orig_mod., module.model.)"},
      {as("state_dict", make_state(3, "model.net.")), " (state_dict, removed from names: model.net.)"},
  };
  for (const auto& [tree, origin] : forms) {
    Net net;
    EXPECT_EQ(init_from(tree, net), "the model starts with 7 tensors of a.pt" + origin);
    expect_filled(net);
  }
}

TEST(InitFrom, TakesThePartThatFitsBest) {
  state::Dict root;
  root.add("optimizer", make_state(4));
  root.add("model", make_state(4));
  root.add("ema_state_dict", make_state(3, "module."));
  Net net;
  EXPECT_EQ(init_from(root, net), "the model starts with 7 tensors of a.pt (ema_state_dict, removed from names: module.)");
  expect_filled(net);
}

TEST(InitFrom, ListsAtMostTenNames) {
  auto dict = make_state();
  for (int i = 10; i < 22; ++i) dict.add(fmt::format("loss.{}", i), torch::zeros({1}));
  Net net;
  EXPECT_THAT(
      [&] { init_from(dict, net); },
      ThrowsMessage<CheckpointError>("a.pt: does not fit the model: unexpected loss.10, loss.11, loss.12, loss.13, loss.14, loss.15, "
                                     "loss.16, loss.17, loss.18, loss.19 and 2 more; set model.init_strict: false to load only "
                                     "what fits (7 entries)"));
}

TEST(InitFrom, ConvertsToTheModelsDtype) {
  Net net(3, torch::kFloat64);
  init_from(make_state(), net);
  expect_filled(net);
}

TEST(InitFrom, AcceptsOldFilesWithoutCounters) {
  Net net;
  EXPECT_EQ(init_from(make_state(3, "", /*with_counter=*/false), net), "the model starts with 6 tensors of a.pt");
}

TEST(InitFrom, StrictReportsAllMismatchesAndChangesNothing) {
  auto dict = make_state(5);
  dict.add("head.weight", torch::zeros({1}));
  dict.add("step", 5);
  Net net;
  const auto weight = net.named_parameters()["bn.weight"];
  const auto before = weight.detach().clone();
  net.register_parameter("extra", torch::zeros({1}));
  EXPECT_THAT(
      [&] { init_from(dict, net); },
      ThrowsMessage<CheckpointError>("a.pt: does not fit the model: missing extra; unexpected head.weight, step; not fitting fc.weight "
                                     "(Float[5, 2] in the file, Float[3, 2] in the model), fc.bias (Float[5] in the file, Float[3] in the "
                                     "model); set model.init_strict: false to load only what fits (5 entries)"));
  EXPECT_TRUE(torch::equal(weight, before));
}

TEST(InitFrom, OtherwiseLoadsWhatFitsAndNamesWhatWasSkipped) {
  Net net;
  EXPECT_EQ(init_from(make_state(5), net, /*strict=*/false),
            "the model starts with 5 tensors of a.pt; skipped: not fitting fc.weight (Float[5, 2] in the file, Float[3, 2] in the model), "
            "fc.bias (Float[5] in the file, Float[3] in the model)");
  EXPECT_EQ(net.named_parameters()["bn.weight"][0].item<float>(), 7);
}

TEST(InitFrom, WarnsWhenMostTensorsAreNotInTheFile) {
  // The warning for a file that contains only the tensors in `names`, of a network for `num_classes` classes.
  const auto warning = [](const std::vector<std::string>& names, int64_t num_classes = 3) {
    Net net;
    const auto whole = make_state(num_classes);
    state::Dict dict;
    for (const auto& name : names) dict.add(name, *whole.find(name));
    return report_of(dict, net, /*strict=*/false).warning;
  };
  const std::string expected =
      "only 2 of the 6 tensors of the network fit a.pt; the others start with random values; if this is not intended, choose the model "
      "for which the file was made";
  EXPECT_EQ(warning({"fc.weight", "fc.bias"}), expected);
  EXPECT_EQ(warning({"bn.weight", "bn.bias", "fc.weight", "fc.bias"}, 5), expected);
  EXPECT_EQ(warning({"bn.weight", "fc.weight", "fc.bias"}), "");
  Net net;
  EXPECT_EQ(report_of(make_state(5), net, /*strict=*/false).warning, "");
  EXPECT_EQ(report_of(make_state(), net, /*strict=*/true).warning, "");
}

TEST(InitFrom, AFileOfWhichNothingFitsIsRejected) {
  Net net;
  const auto error = [](const std::string& what) { return ThrowsMessage<CheckpointError>(::testing::StartsWith("a.pt: " + what)); };
  EXPECT_THAT([&] { init_from(as("scale", {}), net, true); }, error("none of its entries fits the model: missing bn.weight, "));
  EXPECT_THAT([&] { init_from(state::List{1}, net, false); }, error("does not contain a state_dict; save model.state_dict()"));
  state::Dict entries;
  entries.add("fc.bias", torch::zeros({3}, torch::kInt64));
  entries.add("fc.weight", "text");
  EXPECT_THAT([&] { init_from(entries, net, false); },
              ThrowsMessage<CheckpointError>(::testing::EndsWith("not fitting fc.weight (not a tensor), fc.bias (Long[3] in the file, "
                                                                 "Float[3] in the model); choose the model for which the file was made")));
}

TEST(InitFrom, ReadsAFile) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "weights.pt";
  testing::StringOutput output;
  checkpoint::write_pytorch_file(make_state(), output);
  write_file_atomically(path, output.content());
  Net net;
  EXPECT_EQ(init_model(path.string(), /*strict=*/true, net).text, "the model starts with 7 tensors of " + path.string());
  expect_filled(net);
  EXPECT_THROW(init_model((folder.path() / "absent.pt").string(), /*strict=*/true, net), CheckpointError);
}

}  // namespace
}  // namespace trainer::inference
