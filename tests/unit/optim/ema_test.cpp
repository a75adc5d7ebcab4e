#include "train/optim/ema.h"

#include <gmock/gmock.h>

#include <limits>

#include "tests/unit/optim/golden.h"
#include "trainer/error.h"

namespace trainer::optim::test {
namespace {

// The golden problem as a model under SGD, whose parameters are averaged.
struct Averaged : torch::nn::Module {
  explicit Averaged(const EmaOptions& options, bool channels_last = false) {
    if (channels_last) problem.use_channels_last();
    register_parameter("weight", problem.weight);
    register_parameter("bias", problem.bias);
    register_parameter("unused", problem.unused);
    running_mean = register_buffer("running_mean", torch::zeros({2}, torch::kFloat64));
    optimizer = make_optimizer(read_component(optimizer_registry(), "{name: sgd, momentum: 0.9}"), problem.one_group());
    ema.emplace(*this, options);
  }

  void step(int update, float found_inf = 0) {
    const auto found = torch::full({}, found_inf);
    take_step(problem, *optimizer, update, 0.1, 0, found);
    ema->update(found);
  }

  // The averages, read through the model's parameters.
  torch::Tensor averages() {
    const AveragedParameters averaged(*ema);
    return problem.values();
  }

  OptimizerProblem problem;
  torch::Tensor running_mean;
  std::unique_ptr<Optimizer> optimizer;
  std::optional<Ema> ema;
};

const std::map<std::string, EmaOptions> kEmaCases = {{"ema", {.decay = 0.6, .warmup = false}},
                                                     {"ema_warmup", {.decay = 0.6, .warmup = true}}};

TEST(Ema, LikePython) {
  const auto golden = read_golden("ema.txt");
  for (const auto& [name, options] : kEmaCases) {
    for (const bool channels_last : {false, true}) {
      Averaged model(options, channels_last);
      for (int update = 0; update < OptimizerProblem::kUpdates; ++update) {
        model.step(update);
        const auto expected = torch::tensor(golden.at(name).at(static_cast<size_t>(update)), torch::kFloat64);
        EXPECT_LT((model.averages() - expected).abs().max().item<double>(), 1e-12) << name << ", update " << update;
      }
    }
  }
}

TEST(Ema, IsTheModelBeforeTheFirstUpdate) {
  Averaged model({});
  EXPECT_TRUE(torch::equal(model.averages(), model.problem.values()));
}

TEST(Ema, SkippedStepChangesNothing) {
  for (const auto& [name, options] : kEmaCases) {
    Averaged straight(options);
    Averaged other(options);
    other.step(0, /*found_inf=*/1);
    for (int update = 0; update < 3; ++update) {
      straight.step(update);
      other.step(update);
      other.step(update, /*found_inf=*/1);
    }
    EXPECT_TRUE(torch::equal(straight.averages(), other.averages())) << name;
  }
}

// Two swaps restore the same bits in the same tensors and in the same layout.
TEST(Ema, SwapsExactly) {
  Averaged model({.decay = 0.9, .warmup = false}, /*channels_last=*/true);
  for (int update = 0; update < 3; ++update) model.step(update);
  const auto values = model.problem.values();
  const auto averages = model.averages();
  EXPECT_FALSE(torch::equal(values, averages));
  {
    const AveragedParameters averaged(*model.ema);
    EXPECT_TRUE(torch::equal(model.problem.values(), averages));
    EXPECT_TRUE(model.parameters()[0].is_contiguous(at::MemoryFormat::ChannelsLast));
  }
  EXPECT_TRUE(torch::equal(model.problem.values(), values));
  EXPECT_TRUE(torch::equal(model.averages(), averages));
  EXPECT_TRUE(model.problem.weight.is_leaf() && model.problem.weight.requires_grad());
  EXPECT_TRUE(model.parameters()[0].is_same(model.problem.weight));
}

state::Tree copy_of(const state::Tree& tree) {
  std::vector<torch::Tensor> copies;
  for (const auto& tensor : state::tensors_of(tree)) copies.push_back(tensor.clone(at::MemoryFormat::Contiguous));
  return state::with_tensors(tree, copies);
}

TEST(Ema, ContinuesFromItsState) {
  for (const auto& [name, options] : kEmaCases) {
    Averaged original(options, /*channels_last=*/true);
    for (int update = 0; update < 2; ++update) original.step(update);
    const auto tree = copy_of(original.ema->state());
    const auto optimizer_tree = copy_of(original.optimizer->state(/*lr=*/0.1, {}));
    Averaged other(options, /*channels_last=*/true);
    other.step(7);
    {
      const torch::NoGradGuard no_grad;
      for (size_t i = 0; i < 3; ++i) other.parameters()[i].copy_(original.parameters()[i]);
    }
    other.optimizer->load_state(state::View(optimizer_tree, "a.pt"));
    other.ema->load_state(state::View(tree, "a.pt"));
    for (int update = 2; update < 7; ++update) {
      original.step(update);
      other.step(update);
      EXPECT_TRUE(torch::equal(original.averages(), other.averages())) << name << ", update " << update;
    }
  }
}

TEST(Ema, HasTheStateOfAveragedModel) {
  Averaged model({});
  model.step(0);
  model.step(1);
  model.running_mean.fill_(3);
  const auto tree = model.ema->state();
  const state::View view(tree, "a.pt");
  EXPECT_THAT(view.keys(), ::testing::ElementsAre(state::Key("n_averaged"), state::Key("module.weight"), state::Key("module.bias"),
                                                  state::Key("module.unused"), state::Key("module.running_mean")));
  EXPECT_EQ(view.at("n_averaged").tensor().item<int64_t>(), 2);
  EXPECT_TRUE(torch::equal(view.at("module.running_mean").tensor(), model.running_mean));
  const auto weight = view.at("module.weight").tensor();
  const AveragedParameters averaged(*model.ema);
  EXPECT_TRUE(torch::equal(weight, model.problem.weight));
}

TEST(Ema, RefusesTheStateOfAnotherModel) {
  Averaged model({});
  state::Dict dict;
  dict.add("n_averaged", torch::zeros({}, torch::kInt64));
  dict.add("module.weight", torch::zeros({2, 3, 2, 2}, torch::kFloat64));
  const auto expect_message = [&](const std::string& message) {
    const state::Tree tree(dict);
    EXPECT_THAT([&] { model.ema->load_state(state::View(tree, "a.pt")); }, ::testing::ThrowsMessage<CheckpointError>(message));
  };
  expect_message("a.pt: has no \"module.bias\"");
  dict.add("module.bias", torch::zeros({4}, torch::kFloat64));
  expect_message("a.pt: module.bias: is Double[4], but Double[3] is expected");
}

}  // namespace
}  // namespace trainer::optim::test
