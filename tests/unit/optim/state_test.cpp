// A loaded optimizer continues exactly like the saved one.

#include <gmock/gmock.h>

#include "tests/unit/optim/golden.h"
#include "trainer/error.h"

namespace trainer::optim::test {
namespace {

using ::testing::ElementsAre;
using ::testing::ThrowsMessage;

const std::vector<std::string> kOptimizers = {
    "{name: sgd, weight_decay: 0.02}",
    "{name: sgd, momentum: 0.9, weight_decay: 0.02}",
    "{name: sgd, momentum: 0.9, dampening: 0.5, weight_decay: 0.02}",
    "{name: adam, lr: 0.01, weight_decay: 0.1}",
    "{name: adamw, lr: 0.01}",
    "{name: sam, rho: 0.5, momentum: 0.9, dampening: 0.5}",
    "{name: muon, lr: 0.1, normalize_weights: true, sgd_weight_decay: 0.01}",
    "{name: muon, nesterov: false, sgd_momentum: 0}",
    "{name: rmsprop, lr: 0.01, weight_decay: 0.1, momentum: 0.9, centered: true}",
};

// A problem and its optimizer.
struct Training {
  explicit Training(const std::string& yaml, bool channels_last = false) {
    if (channels_last) problem.use_channels_last();
    optimizer = make_optimizer(read_component(optimizer_registry(), yaml), problem.two_groups());
  }

  void step(int update, int first_update_of_bias, float found_inf = 0) {
    take_step(problem, *optimizer, update, 0.1, first_update_of_bias, torch::full({}, found_inf));
  }

  OptimizerProblem problem;
  std::unique_ptr<Optimizer> optimizer;
};

// A copy like one loaded from a file: in separate memory, contiguous.
state::Tree stored(const Optimizer& optimizer) {
  const auto tree = optimizer.state(/*lr=*/0.1, {});
  std::vector<torch::Tensor> copies;
  for (const auto& tensor : state::tensors_of(tree)) copies.push_back(tensor.clone(at::MemoryFormat::Contiguous));
  return state::with_tensors(tree, copies);
}

// Another training, with a different history, continues from the state of `original`.
void expect_same_future(Training& original, Training& other, int next_update, int first_update_of_bias, const std::string& what) {
  const torch::NoGradGuard no_grad;
  const auto tree = stored(*original.optimizer);
  other.optimizer->zero_grad();
  other.optimizer->load_state(state::View(tree, "a.pt"));
  for (size_t i = 0; i < 3; ++i) other.optimizer->parameters()[i].copy_(original.optimizer->parameters()[i]);
  for (int update = next_update; update < next_update + 5; ++update) {
    original.step(update, first_update_of_bias);
    other.step(update, first_update_of_bias);
    ASSERT_TRUE(torch::equal(original.problem.values(), other.problem.values())) << what << ", update " << update;
  }
}

// Also tests states in which the bias has no gradient yet, or in which a step was skipped: the first step, or the first with a gradient of
// the bias.
TEST(OptimizerState, ContinuesBitForBit) {
  for (const auto& yaml : with_all_defaults(kOptimizers)) {
    for (const int first_update_of_bias : {0, 3, 6}) {
      for (const int skipped : {-1, 0, 3}) {
        for (int num_updates = 0; num_updates < 5; ++num_updates) {
          Training original(yaml, /*channels_last=*/true);
          Training other(yaml, /*channels_last=*/true);
          for (int update = 0; update < num_updates; ++update) {
            original.step(update, first_update_of_bias, update == skipped ? 1 : 0);
            other.step(update + 7, 0);
          }
          expect_same_future(original, other, num_updates, first_update_of_bias, yaml);
        }
      }
    }
  }
}

TEST(OptimizerState, KeepsTheLayoutOfTheParameters) {
  for (const auto& yaml : {"{name: sgd, momentum: 0.9}", "{name: adam}", "{name: muon}"}) {
    Training original(yaml, /*channels_last=*/true);
    original.step(0, 0);
    Training loaded(yaml, /*channels_last=*/true);
    const auto tree = stored(*original.optimizer);
    loaded.optimizer->load_state(state::View(tree, "a.pt"));
    for (const auto& training : {&original, &loaded}) {
      for (const auto& tensor : state::tensors_of(training->optimizer->state(/*lr=*/0.1, {}))) {
        EXPECT_TRUE(tensor.dim() != 4 || tensor.strides() == original.problem.weight.strides());
      }
    }
  }
}

// tests/parity/test_optimizer_state.py compares the state with Python's.
TEST(OptimizerState, HasTheLayoutOfTorchOptim) {
  Training training("{name: sgd, lr: 0.5, momentum: 0.9, weight_decay: 0.02}");
  training.step(0, /*first_update_of_bias=*/1);
  state::Dict of_scheduler;
  of_scheduler.add("initial_lr", 0.5);
  const auto tree = training.optimizer->state(/*lr=*/0.1, of_scheduler);
  const state::View view(tree, "a.pt");
  EXPECT_THAT(view.keys(), ElementsAre(state::Key("state"), state::Key("param_groups")));
  EXPECT_THAT(view.at("state").keys(), ElementsAre(state::Key(int64_t{0})));
  EXPECT_EQ(view.at("state").at(int64_t{0}).at("momentum_buffer").tensor().sizes(), training.problem.weight.sizes());
  const auto groups = view.at("param_groups").elements();
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].at("lr").number(), 0.1);
  EXPECT_EQ(groups[0].at("initial_lr").number(), 0.5);
  EXPECT_EQ(groups[0].at("weight_decay").number(), 0.02);
  EXPECT_EQ(groups[1].at("weight_decay").number(), 0);
  ASSERT_EQ(groups[1].at("params").elements().size(), 2U);
  EXPECT_EQ(groups[1].at("params").elements()[1].integer(), 2);
}

TEST(OptimizerState, HasTheLearningRatesOfEachGroup) {
  OptimizerProblem problem;
  const auto optimizer =
      make_optimizer(read_component(optimizer_registry(), "{name: sgd, lr: 0.5, weight_decay: 0.02}"), problem.own_options());
  state::Dict of_scheduler;
  of_scheduler.add("initial_lr", 0.5);
  of_scheduler.add("max_lr", 2.0);
  const auto tree = optimizer->state(/*lr=*/0.125, of_scheduler);
  const auto groups = state::View(tree, "a.pt").at("param_groups").elements();
  ASSERT_EQ(groups.size(), 2U);
  const auto values = [](const state::View& group) {
    return std::vector<double>{group.at("lr").number(), group.at("initial_lr").number(), group.at("max_lr").number(),
                               group.at("weight_decay").number()};
  };
  EXPECT_THAT(values(groups[0]), ElementsAre(0.125, 0.5, 2, 0.02));
  EXPECT_THAT(values(groups[1]), ElementsAre(0.125 / 4, 0.5 / 4, 2.0 / 4, 0.125));
  ASSERT_EQ(groups[1].at("params").elements().size(), 1U);
  EXPECT_EQ(groups[1].at("params").elements()[0].integer(), 2);
}

// Earlier versions of PyTorch wrote this for SGD without momentum.
TEST(OptimizerState, ReadsAMomentumBufferThatIsNone) {
  Training training("{name: sgd}");
  state::Dict entry;
  entry.add("momentum_buffer", state::Tree());
  state::Dict states;
  states.add(int64_t{1}, std::move(entry));
  state::Dict root;
  root.add("state", std::move(states));
  root.add("param_groups", *std::get<state::Dict>(training.optimizer->state(/*lr=*/0.1, {}).value()).find("param_groups"));
  const state::Tree tree(std::move(root));
  training.optimizer->load_state(state::View(tree, "a.pt"));
  EXPECT_TRUE(state::tensors_of(training.optimizer->state(/*lr=*/0.1, {})).empty());
}

// Expects that loading the state of another optimizer with `groups` throws `message`.
void expect_refused(const std::string& yaml, std::vector<ParamGroup> groups, const std::string& other_yaml, const std::string& message) {
  const auto other = make_optimizer(read_component(optimizer_registry(), other_yaml), std::move(groups));
  for (const auto& param : other->parameters()) {
    auto grad = torch::ones_like(param);
    param.mutable_grad() = grad;
  }
  other->step(0.1);
  const auto tree = other->state(/*lr=*/0.1, {});
  Training training(yaml);
  EXPECT_THAT([&] { training.optimizer->load_state(state::View(tree, "a.pt")); }, ThrowsMessage<CheckpointError>(message));
}

TEST(OptimizerState, RefusesTheStateOfAnotherModelOrOptimizer) {
  const std::string sgd = "{name: sgd, momentum: 0.9}";
  OptimizerProblem problem;
  expect_refused(sgd, problem.one_group(), sgd,
                 "a.pt: param_groups: has 1 group of parameters, but the optimizer has 2; use the groups of the run that saved this state");
  expect_refused(sgd, {{.params = {problem.weight}}, {.params = {problem.bias}}}, sgd,
                 "a.pt: param_groups[1].params: has 1 parameter, but the optimizer has 2 in this group; use the groups of the run that "
                 "saved this state");
  expect_refused(sgd, {{.params = {problem.weight}}, {.params = {problem.unused, problem.bias}}}, sgd,
                 "a.pt: state.1.momentum_buffer: is Double[2], but Double[3] is expected");
  expect_refused("{name: adam}", problem.two_groups(), sgd, "a.pt: state.0: has no \"step\"");
  expect_refused(sgd, problem.two_groups(), "{name: adam}", "a.pt: state.0: has no \"momentum_buffer\"");
  problem.use_float32();
  expect_refused("{name: adam}", problem.two_groups(), "{name: adam}",
                 "a.pt: state.0.exp_avg: is Float[2, 3, 2, 2], but Double[2, 3, 2, 2] is expected");
}

// A state whose groups contain the parameters of these numbers, with an empty entry for each of `entries`.
state::Tree numbered(const std::vector<state::List>& numbers, const std::vector<int64_t>& entries) {
  state::List groups;
  for (const auto& list : numbers) {
    state::Dict group;
    group.add("params", list);
    groups.emplace_back(std::move(group));
  }
  state::Dict states;
  for (const auto entry : entries) states.add(entry, state::Dict());
  state::Dict root;
  root.add("state", std::move(states));
  root.add("param_groups", std::move(groups));
  return root;
}

TEST(OptimizerState, RefusesWrongParameterNumbers) {
  Training training("{name: sgd}");
  const auto expect_message = [&](const state::Tree& tree, const std::string& message) {
    EXPECT_THAT([&] { training.optimizer->load_state(state::View(tree, "a.pt")); }, ThrowsMessage<CheckpointError>(message));
  };
  expect_message(numbered({{0}, {2, 1}}, {}),
                 "a.pt: param_groups[1].params[0]: is 2 instead of 1, but parameters must be numbered in order");
  expect_message(
      numbered({{0}, {1, 2}}, {3}),
      "a.pt: state: has 1 entry without a parameter in the model, which has 3 parameters; use the model of the run that saved this state");
}

}  // namespace
}  // namespace trainer::optim::test
