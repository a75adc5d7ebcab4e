#pragma once
// Values computed in Python (tests/golden), and the problem of make_optimizers.py.

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/testing/read_component.h"
#include "train/optim/optimizer.h"
#include "trainer/torch.h"

namespace trainer::optim::test {

using trainer::testing::read_component;

// The lines of tests/golden/<file>, by their first word.
inline std::map<std::string, std::vector<std::vector<double>>> read_golden(const std::string& file) {
  std::ifstream stream(std::string(TRAINER_SOURCE_DIR) + "/tests/golden/" + file);
  if (!stream) throw std::runtime_error("cannot open tests/golden/" + file);
  std::map<std::string, std::vector<std::vector<double>>> rows;
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string name;
    words >> name;
    auto& row = rows[name].emplace_back();
    for (double value = 0; words >> value;) row.push_back(value);
  }
  return rows;
}

// `yamls` and, for each optimizer of the registry, one with default options.
inline std::vector<std::string> with_all_defaults(std::vector<std::string> yamls) {
  for (const auto& name : optimizer_registry().names()) yamls.push_back("{name: " + name + "}");
  return yamls;
}

// Three parameters and a quadratic loss whose minimum moves with each update; see tests/golden/make_optimizers.py.
struct OptimizerProblem {
  static constexpr int kUpdates = 5;

  torch::Tensor weight = pattern({2, 3, 2, 2}, 0).requires_grad_();
  torch::Tensor bias = pattern({3}, 1).requires_grad_();
  torch::Tensor unused = pattern({2}, 2).requires_grad_();
  bool contiguous_gradients = false;  // otherwise gradients have the parameter's layout

  void use_channels_last() { weight = weight.detach().contiguous(at::MemoryFormat::ChannelsLast).requires_grad_(); }
  void use_float32() {
    for (auto* param : {&weight, &bias, &unused}) *param = param->detach().to(torch::kFloat32).requires_grad_();
  }

  static torch::Tensor pattern(torch::IntArrayRef shape, int64_t offset) {
    const auto index = torch::arange(c10::multiply_integers(shape), torch::kFloat64);
    return ((7 * index + 5 * offset).remainder(33) - 16).div(16).reshape(shape);
  }

  std::vector<ParamGroup> one_group() const { return {{.params = {weight, bias, unused}, .decay = true}}; }
  std::vector<ParamGroup> two_groups() const { return {{.params = {weight}, .decay = true}, {.params = {bias, unused}, .decay = false}}; }
  // The bias has a quarter of the learning rate and a weight decay of its own.
  std::vector<ParamGroup> own_options() const {
    return {{.params = {weight, unused}}, {.params = {bias}, .lr_factor = 0.25, .weight_decay = 0.125}};
  }

  void set_gradients(int update, int first_update_of_bias = 0) {
    const auto gradient = 0.5 * weight.detach() + pattern(weight.sizes(), 3 + update).to(weight.dtype());
    weight.mutable_grad() = contiguous_gradients ? gradient.contiguous() : gradient;
    if (update >= first_update_of_bias) bias.mutable_grad() = 0.5 * bias.detach() + pattern(bias.sizes(), 4 + update).to(bias.dtype());
  }

  torch::Tensor values() const { return torch::cat({weight.detach().flatten(), bias.detach(), unused.detach()}).to(torch::kFloat64); }
};

// Runs all passes and the update of step number `update`.
inline void take_step(OptimizerProblem& problem, Optimizer& optimizer, int update, double lr, int first_update_of_bias = 0,
                      const std::optional<torch::Tensor>& found_inf = {}) {
  problem.set_gradients(update, first_update_of_bias);
  if (optimizer.needs_second_pass()) {
    optimizer.perturb_parameters();
    problem.set_gradients(update, first_update_of_bias);
  }
  optimizer.step(lr, found_inf);
}

// The largest difference from the golden values over the updates of `problem`.
inline double difference_from_golden(const std::string& name, OptimizerProblem& problem, Optimizer& optimizer,
                                     int first_update_of_bias = 0) {
  const auto expected = read_golden("optimizers.txt").at(name);
  double largest = 0;
  for (int update = 0; update < OptimizerProblem::kUpdates; ++update) {
    take_step(problem, optimizer, update, optimizer.base_lr() * (1 - update / 8.0), first_update_of_bias);
    const auto row = torch::tensor(expected.at(static_cast<size_t>(update)), torch::kFloat64);
    largest = std::max(largest, (problem.values() - row).abs().max().item<double>());
  }
  return largest;
}

}  // namespace trainer::optim::test
