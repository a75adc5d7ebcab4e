#include "tests/testing/scaler_cases.h"

#include <string>

#include "tests/unit/optim/golden.h"
#include "trainer/amp.h"
#include "trainer/torch.h"

namespace trainer::testing {
namespace {

// Like pattern() in make_grad_scaler.py.
torch::Tensor pattern(torch::IntArrayRef shape, int64_t offset) {
  return optim::test::OptimizerProblem::pattern(shape, offset).to(torch::kFloat32);
}

struct Problem {
  torch::Tensor weight = pattern({5, 9}, 0).requires_grad_();
  torch::Tensor bias = pattern({3}, 1).requires_grad_();

  torch::Tensor loss(int64_t step, int64_t first_step_of_bias) const {
    const auto loss = ((weight * 0.25 + pattern(weight.sizes(), 3 + step)) * weight).sum();
    if (step < first_step_of_bias) return loss;
    return loss + ((bias * 0.25 + pattern(bias.sizes(), 4 + step)) * bias).sum();
  }

  // [step, parameter, flat index, value]
  void inject(const nlohmann::json& injection) const {
    const auto& grad = (injection.at(1) == "weight" ? weight : bias).grad();
    if (grad.defined()) grad.view(-1)[injection.at(2).get<int64_t>()] = std::stod(injection.at(3).get<std::string>());
  }

  torch::Tensor values() const { return torch::cat({weight.detach().flatten(), bias.detach()}).to(torch::kFloat64); }
};

}  // namespace

nlohmann::json run_scaler_case(const nlohmann::json& case_json) {
  const Problem problem;
  // JSON is YAML.
  const auto part = testing::read_component(optim::optimizer_registry(), case_json.at("optimizer").dump());
  const auto optimizer = optim::make_optimizer(part, {{.params = {problem.weight, problem.bias}}});
  const auto& keys = case_json.at("scaler");
  amp::GradScaler scaler({.init_scale = keys.at("init_scale"),
                          .growth_factor = keys.at("growth_factor"),
                          .backoff_factor = keys.at("backoff_factor"),
                          .growth_interval = keys.at("growth_interval").get<int64_t>()},
                         torch::kCPU);

  auto result = case_json;
  result["trace"] = nlohmann::json::array();
  const auto places = torch::arange(1, problem.values().numel() + 1, torch::kFloat64);
  for (int64_t step = 0; step < case_json.at("steps").get<int64_t>(); ++step) {
    const int64_t skipped_before = scaler.num_skipped();
    optimizer->zero_grad();
    scaler.scale(problem.loss(step, case_json.at("first_step_of_bias"))).backward();
    for (const auto& injection : case_json.at("injections")) {
      if (injection.at(0) == step) problem.inject(injection);
    }
    scaler.unscale(optimizer->parameters());
    if (case_json.contains("clip")) optim::clip_grad_norm(optimizer->parameters(), case_json.at("clip"));
    optimizer->step(optimizer->base_lr(), scaler.found_inf());
    scaler.update();
    const auto values = problem.values().abs();
    result["trace"].push_back({scaler.current_scale().item<float>(), scaler.growth_tracker().item<int>(),
                               scaler.num_skipped() - skipped_before, values.sum().item<double>(), (places * values).sum().item<double>()});
  }
  result["parameters"] = nlohmann::json::array();
  const auto values = problem.values();
  for (int64_t i = 0; i < values.numel(); ++i) result["parameters"].push_back(values[i].item<double>());
  return result;
}

}  // namespace trainer::testing
