// Resumes the problem of tests/unit/optim/golden.h from FROM (from the beginning if it is "-"), does some updates and writes the state to
// TO, for tests/parity/test_optimizer_state.py. Both are files of {"update", "parameters", "optimizer", "ema"} in PyTorch's format.
//   parity_optimizer_state OPTIMIZER EMA GROUPS UPDATES FROM TO
//     OPTIMIZER, EMA: the sections' keys in YAML; GROUPS: two_groups or own_options

#include "base/file.h"
#include "checkpoint/pytorch_file.h"
#include "config/sections.h"
#include "tests/testing/string_output.h"
#include "tests/unit/optim/golden.h"
#include "train/optim/ema.h"
#include "trainer/checkpoint.h"
#include "trainer/state.h"

namespace {

using namespace trainer;

struct Problem : torch::nn::Module {
  Problem() {
    register_parameter("weight", values.weight);
    register_parameter("bias", values.bias);
    register_parameter("unused", values.unused);
  }
  optim::test::OptimizerProblem values;
};

optim::EmaOptions read_ema(const std::string& yaml) {
  optim::EmaOptions ema;
  config::Problems problems;
  config::read_section(
      config::parse_yaml(yaml, "test"), [&](KeyTable& keys) { describe(keys, ema); }, "ema", problems);
  problems.throw_if_any();
  return ema;
}

std::vector<optim::ParamGroup> groups_of(const std::string& name, const optim::test::OptimizerProblem& problem) {
  TORCH_CHECK(name == "two_groups" || name == "own_options", "unknown groups: ", name);
  return name == "two_groups" ? problem.two_groups() : problem.own_options();
}

}  // namespace

int main(int argc, char** argv) {
  TORCH_CHECK(argc == 7, "arguments: OPTIMIZER EMA GROUPS UPDATES FROM TO");
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  Problem problem;
  const auto part = testing::read_component(optim::optimizer_registry(), arguments[0]);
  const auto optimizer = optim::make_optimizer(part, groups_of(arguments[2], problem.values));
  optim::Ema ema(problem, read_ema(arguments[1]));
  int update = 0;
  if (arguments[4] != "-") {
    const auto tree = checkpoint::load(arguments[4]);
    const state::View view(tree, arguments[4]);
    update = static_cast<int>(view.at("update").integer());
    for (const auto& param : problem.named_parameters()) view.at("parameters").at(param.key()).copy_to(param.value());
    optimizer->load_state(view.at("optimizer"));
    ema.load_state(view.at("ema"));
  }
  for (const int end = update + std::stoi(arguments[3]); update < end; ++update) {
    optim::test::take_step(problem.values, *optimizer, update, optimizer->base_lr(), /*first_update_of_bias=*/1);
    ema.update();
  }
  state::Dict tree;
  tree.add("update", update);
  tree.add("parameters", state::state_of(problem));
  tree.add("optimizer", optimizer->state(optimizer->base_lr(), {}));
  tree.add("ema", ema.state());
  testing::StringOutput output;
  checkpoint::write_pytorch_file(tree, output);
  write_file_atomically(arguments[5], output.content());
}
