#pragma once
// Shared by the tests of the networks: building one by name, and describing its state.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "models/model_registry.h"
#include "nn/batch_norm.h"
#include "tests/testing/read_component.h"

namespace trainer::models::test {

inline BuildContext make_context(uint64_t seed = 1) {
  return {at::detail::createCPUGenerator(seed), at::detail::createCPUGenerator(seed + 1000), nn::batch_norms()};
}

// Builds the network of that name. `options`: its options as in an experiment file: "key: value, …".
inline std::shared_ptr<Model> build(const std::string& name, const std::string& options = "",
                                    const BuildContext& context = make_context()) {
  return model_registry().make(trainer::testing::read_component(model_registry(), "{name: " + name + ", " + options + "}"), context);
}

inline torch::Tensor random_images(int64_t count, int64_t size = 32, torch::ScalarType dtype = torch::kFloat32) {
  return at::randn({count, 3, size, size}, at::detail::createCPUGenerator(5), dtype);
}

// Expects that dropout draws from `context`'s generator, with which `model` was built, and is off in eval mode. Leaves the model in eval
// mode.
inline void expect_dropout_follows_generator(Model& model, BuildContext& context) {
  const torch::Tensor x = random_images(2);
  const torch::NoGradGuard no_grad;
  const auto forward_seeded = [&](uint64_t seed) {
    context.dropout_generator.set_current_seed(seed);
    return model.forward(x);
  };
  const torch::Tensor first = forward_seeded(1);
  EXPECT_TRUE(at::equal(forward_seeded(1), first));
  EXPECT_FALSE(at::allclose(forward_seeded(2), first));
  model.eval();
  EXPECT_TRUE(at::equal(forward_seeded(1), forward_seeded(2)));
}

inline int64_t count_parameters(const Model& model) {
  int64_t count = 0;
  for (const torch::Tensor& parameter : model.parameters()) count += parameter.numel();
  return count;
}

// "name shape" of each parameter and buffer, in the order of Python's state_dict, as in tests/golden/torchvision_names.txt.
inline void append_state_names(const torch::nn::Module& module, const std::string& prefix, std::vector<std::string>& lines) {
  const auto append = [&](const auto& named_tensors) {
    for (const auto& item : named_tensors) {
      std::string shape;
      for (const int64_t size : item.value().sizes()) shape += (shape.empty() ? "" : "x") + std::to_string(size);
      lines.push_back(prefix + item.key() + " " + (shape.empty() ? "()" : shape));
    }
  };
  append(module.named_parameters(/*recurse=*/false));
  append(module.named_buffers(/*recurse=*/false));
  for (const auto& child : module.named_children()) append_state_names(*child.value(), prefix + child.key() + ".", lines);
}

inline std::vector<std::string> state_names(const Model& model) {
  std::vector<std::string> lines;
  append_state_names(model, "", lines);
  return lines;
}

// The golden lines of one of torchvision's networks.
inline std::vector<std::string> torchvision_names(const std::string& network) {
  std::ifstream file(TRAINER_SOURCE_DIR "/tests/golden/torchvision_names.txt");
  std::vector<std::string> lines;
  bool wanted = false;
  for (std::string line; std::getline(file, line);) {
    const bool is_heading = line.find(' ') == std::string::npos;
    if (is_heading) wanted = line == network;
    if (wanted && !is_heading) lines.push_back(line);
  }
  return lines;
}

}  // namespace trainer::models::test
