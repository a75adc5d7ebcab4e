#include "tests/testing/loss_cases.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fmt/format.h>

#include "config/load.h"
#include "run/rank/rank_context.h"
#include "run/recipe/build.h"
#include "run/recipe/registries.h"
#include "run/session/session.h"
#include "tests/testing/ranks.h"
#include "train/engine/train_step.h"
#include "trainer/torch.h"

namespace trainer::testing {
namespace {

config::Experiment experiment_of(const nlohmann::json& case_json) {
  static const auto registries = recipe::all_registries();
  const auto network = case_json.at("network").get<std::string>();
  const auto number = [&](const char* key) { return case_json.at(key).dump(); };
  std::string optimizer = fmt::format("{{name: {}, lr: {}, weight_decay: {}", case_json.at("optimizer").get<std::string>(), number("lr"),
                                      number("weight_decay"));
  if (case_json.contains("momentum")) optimizer += ", momentum: " + number("momentum");
  const auto text = fmt::format(
      "experiment: losses\nseed: {}\nmodel: {{name: {}{}}}\ndataset: {{name: synthetic, shape: [3, 32, 32], batch_transforms: {}}}\n"
      "loss: {{label_smoothing: {}, class_weights: {}}}\noptimizer: {}}}\ntraining: {{epochs: 1}}\n"
      "runtime: {{device: cpu, dtype: {}, threads: 1, channels_last: {}, convolution: {}}}\namp: {{enabled: false}}\n"
      "distributed: {{sync_batch_norm: {}}}\n",
      number("seed"), network, network == "resnet18" ? ", stem: cifar" : "", case_json.value("batch_transforms", "[]"),
      case_json.value("label_smoothing", 0.0), case_json.value("class_weights", nlohmann::json::array()).dump(), optimizer,
      case_json.at("dtype").get<std::string>(), case_json.contains("convolution"), case_json.value("convolution", "direct"),
      case_json.value("sync_batch_norm", true));
  return config::load_text(text, "case", {}, registries);
}

// Like networks.fill of tests/golden/networks.py.
void fill(models::Model& model, uint64_t seed) {
  const torch::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  for (auto& item : model.named_parameters()) {
    auto values = torch::randn(item.value().sizes(), generator, torch::kFloat64);
    if (values.dim() >= 2) {
      values *= std::sqrt(2.0 / (static_cast<double>(values.numel()) / static_cast<double>(values.size(0))));
    } else {
      values = values * 0.1 + (item.key().ends_with("weight") ? 1 : 0);
    }
    item.value().copy_(values);
  }
}

// Restores the buffers that the session has fitted to its data, because the Python script has no such data.
void restore_buffers(models::Model& model, const models::Model& unfitted) {
  const torch::NoGradGuard no_grad;
  const auto from = unfitted.buffers();
  auto to = model.buffers();
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
}

// The results of the case on one rank. Collective.
nlohmann::json train(const nlohmann::json& case_json, const engine::Ranks& ranks) {
  const auto experiment = experiment_of(case_json);
  rank::RankContext context(experiment, {}, make_quiet_logger(), ranks);
  auto recipe = rank::recipe_of(context);
  session::Session session(context.this_rank(), recipe);
  auto& parts = session.parts();
  const auto seed = case_json.at("seed").get<uint64_t>();
  fill(*parts.network.model, seed);
  restore_buffers(*parts.network.model, *recipe::build_network(experiment, parts.network.placement).model);
  parts.network.model->train();

  const auto steps = case_json.at("steps").get<int64_t>();
  const auto batch_size = case_json.at("batch").get<int64_t>();
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed + 1);
  const auto part_of_rank = [&](const torch::Tensor& all) {
    return all.slice(1, ranks.world->rank(), std::nullopt, ranks.world->size()).contiguous();
  };
  const auto images =
      part_of_rank(torch::randn({steps, batch_size, 3, 32, 32}, generator, torch::kFloat64)).to(parts.network.placement.dtype);
  const auto labels = part_of_rank(torch::randint(0, 10, {steps, batch_size}, generator, torch::kInt64));

  auto meter = parts.network.task->make_train_meter(parts.network.placement.device);
  engine::TrainStep train_step(parts, seed, std::nullopt, meter);
  const double lr = parts.network.optimizer->base_lr();
  auto result = case_json;
  result["losses"] = nlohmann::json::array();
  for (int64_t step = 0; step < steps; ++step) {
    const data::Batch batch{images[step].contiguous(parts.network.placement.memory_format), labels[step], images.size(1)};
    train_step.run(
        {{.step = step, .num_group_samples = batch_size, .stream = ranks.world->rank()}}, [&]() -> const data::Batch& { return batch; },
        lr);
    result["losses"].push_back(*reporting::value_of(meter.read(*ranks.world).metrics, "loss"));
    meter.reset();
  }
  double sum = 0;
  double sum_of_squares = 0;
  for (const auto& parameter : parts.network.model->parameters()) {
    const auto values = parameter.detach().to(torch::kFloat64);
    sum += values.sum().item<double>();
    sum_of_squares += values.square().sum().item<double>();
  }
  result["sum"] = sum;
  result["sum_of_squares"] = sum_of_squares;
  return result;
}

}  // namespace

nlohmann::json run_loss_case(const nlohmann::json& case_json) {
  if (!case_json.contains("ranks")) return train(case_json, {});
  nlohmann::json result;
  run_ranks(case_json.at("ranks").get<int>(), [&](distributed::ProcessGroups& groups) {
    auto of_this_rank = train(case_json, engine::make_ranks(groups));
    if (groups.world()->rank() == 0) result = std::move(of_this_rank);
  });
  return result;
}

}  // namespace trainer::testing
