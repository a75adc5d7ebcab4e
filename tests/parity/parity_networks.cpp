// parity_networks NAME KEYS IN OUT, for tests/parity/test_networks.py: builds the network NAME with KEYS ("key: value, ...") in float64 and
// training mode, and loads "state" of the file IN into it. Computes the outputs for "images" of IN, and the gradients of
// sum(outputs * "weights"). Writes "outputs", "gradients" by name, the "buffers" afterwards and the "initial" values of the parameters to
// OUT.

#include <iostream>

#include "models/model_registry.h"
#include "nn/batch_norm.h"
#include "tests/testing/read_component.h"
#include "trainer/checkpoint.h"
#include "trainer/error.h"
#include "trainer/state.h"

int main(int argc, char** argv) try {
  using namespace trainer;
  if (argc != 5) return 2;
  const auto text = "{name: " + std::string(argv[1]) + ", " + argv[2] + "}";
  const models::BuildContext context{at::detail::createCPUGenerator(1), at::detail::createCPUGenerator(2), nn::batch_norms()};
  const auto model = models::model_registry().make(testing::read_component(models::model_registry(), text), context);
  const auto tree = checkpoint::load(argv[3]);
  const state::View view(tree, argv[3]);
  state::Dict initial;
  for (const auto& parameter : model->named_parameters()) initial.add(parameter.key(), parameter.value().detach().clone());
  model->to(torch::kFloat64);
  state::load_state_of(*model, view.at("state"));
  const auto outputs = model->forward(view.at("images").tensor());
  (outputs * view.at("weights").tensor()).sum().backward();
  state::Dict gradients;
  for (const auto& parameter : model->named_parameters()) gradients.add(parameter.key(), parameter.value().grad());
  state::Dict buffers;
  for (const auto& buffer : model->named_buffers()) buffers.add(buffer.key(), buffer.value());
  state::Dict result;
  result.add("initial", std::move(initial));
  result.add("outputs", outputs.detach());
  result.add("gradients", std::move(gradients));
  result.add("buffers", std::move(buffers));
  checkpoint::save(argv[4], result);
} catch (const trainer::Error& error) {
  std::cerr << error.what() << '\n';
  return static_cast<int>(error.exit_code());
}
