#pragma once
// The training of bench_step, bench_ranks and bench_checkpoint: SGD with momentum, cross entropy, and the program's defaults.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "config/load.h"
#include "device/libtorch_settings.h"
#include "launch/world/host_resources.h"
#include "run/rank/rank_context.h"
#include "run/recipe/registries.h"
#include "run/session/session.h"
#include "train/engine/train_step.h"
#include "trainer/amp.h"
#include "trainer/nn.h"

namespace trainer::bench {

struct TrainingOptions {
  std::string network;
  std::string source = "pipeline";
  std::string data;
  int64_t batch_size = 128;
  int64_t image_size = 32;  // height and width, for ready batches
  bool freezes_statistics = false;
  std::vector<std::string> overrides;

  void add_to(CLI::App& app) {
    app.add_option("--network", network)->required();
    app.add_option("--batch-size", batch_size, "samples per batch of this process");
    app.add_option("--size", image_size, "height and width of the images of ready batches");
    app.add_option("--input", source)->check(CLI::IsMember({"resident", "pipeline"}));
    app.add_option("--data", data)->required();
    app.add_flag("--frozen-statistics", freezes_statistics, "batch normalisation uses running statistics, of ten batches");
    app.add_option("overrides", overrides, "key=value of the experiment");
  }
};

inline config::Experiment make_experiment(const TrainingOptions& options) {
  const auto text = fmt::format(
      "experiment: bench\nmodel: {{name: {}}}\n"
      "dataset:\n  name: cifar10\n  root: {}\n  train_transforms:\n"
      "    - random_crop: {{size: 32, padding: 4}}\n    - random_horizontal_flip\n"
      "    - normalize: {{mean: [0.4914, 0.4822, 0.4465], std: [0.2470, 0.2435, 0.2616]}}\n"
      "dataloader: {{batch_size: {}}}\n"
      "optimizer: {{name: sgd, lr: 0.01, momentum: 0.9, weight_decay: 5.0e-4, nesterov: true}}\ntraining: {{epochs: 1}}\n",
      options.network, options.data, options.batch_size);
  auto overrides = options.overrides;
  if (options.network == "resnet18" && options.image_size == 32) overrides.push_back("model.stem=cifar");
  if (options.network == "vgg16_bn") overrides.push_back("model.head=cifar");
  static const auto registries = recipe::all_registries();
  return config::load_text(text, "bench", overrides, registries);
}

// An endless source of batches: ready batches in the memory of the device, or those of the loader.
class BatchSource {
 public:
  // `image_size`: height and width of ready batches; empty: use the loader's batches.
  BatchSource(engine::Parts& parts, std::optional<int64_t> image_size) : parts_(parts) {
    for (int i = 0; image_size && i < 8; ++i) {
      add(torch::randn({parts.data.plan.batch_size, 3, *image_size, *image_size}),
          torch::randint(0, 10, {parts.data.plan.batch_size}, torch::kInt64));
    }
  }

  // Adds a ready batch.
  void add(const torch::Tensor& images, const torch::Tensor& targets) {
    const auto& placement = parts_.network.placement;
    resident_.push_back({images.to(placement.device, placement.input_dtype).contiguous(placement.memory_format),
                         targets.to(placement.device), images.size(0)});
  }

  const data::Batch& next() {
    if (!resident_.empty()) return resident_[static_cast<size_t>(count_++) % resident_.size()];
    const auto& plan = parts_.data.plan;
    if (count_ % plan.batches_per_epoch == 0) parts_.data.begin(rest_of_epoch(plan, count_ / plan.batches_per_epoch), 0);
    ++count_;
    return parts_.data.next();
  }

 private:
  engine::Parts& parts_;
  std::vector<data::Batch> resident_;
  int64_t count_ = 0;
};

// All parts of a run in one process.
struct SingleProcess {
  explicit SingleProcess(const TrainingOptions& options)
      : context(make_experiment(options), {.num_threads = world::available_cpus()}, make_quiet_logger()) {}

  rank::RankContext context;
  recipe::Recipe recipe = rank::recipe_of(context);
  session::Session session{context.this_rank(), recipe};
  engine::Parts& parts = session.parts();
};

// Runs training steps of the program.
class Training {
 public:
  Training(engine::Parts& parts, const TrainingOptions& options)
      : parts_(parts),
        batches_(parts, options.source == "resident" ? std::optional(options.image_size) : std::nullopt),
        meter_(parts.network.task->make_train_meter(parts.network.placement.device)),
        train_step_(parts, 0, std::nullopt, meter_) {
    parts.network.model->train();
    if (options.freezes_statistics) freeze_statistics();
  }

  void step(const std::vector<engine::TrainingHook*>& hooks = {}) {
    const auto next_batch = [&]() -> const data::Batch& { return batches_.next(); };
    train_step_.run({{.step = step_++, .num_group_samples = parts_.data.plan.global_batch_size}}, next_batch,
                    parts_.network.optimizer->base_lr(), hooks);
  }

  task::TrainMeter& meter() { return meter_; }

  // Collective. Waits until all ranks are done; throws if the loss is not finite.
  void check() {
    if (!std::isfinite(meter_.read(*parts_.ranks.world).metrics[0].value))
      throw std::runtime_error("the loss is not finite, so the figures are meaningless");
  }
  // Returns the seconds until all steps were queued; on a CPU, this is the time of the steps.
  double run(
      int64_t num_steps, const std::function<void(int64_t)>& before_step = [](int64_t) {}) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < num_steps; ++i) {
      before_step(step_);
      step();
    }
    const std::chrono::duration<double> queued = std::chrono::steady_clock::now() - start;
    check();
    return queued.count();
  }

  // Evaluates the network on `num_batches` batches, like the validation.
  void evaluate(int64_t num_batches) {
    const auto& placement = parts_.network.placement;
    const torch::InferenceMode inference;
    parts_.network.model->eval();
    const auto meter = parts_.network.task->make_validation_meter(placement.device, /*num_classes=*/10, num_batches);
    for (int64_t i = 0; i < num_batches; ++i) {
      const auto& batch = batches_.next();
      const amp::AutocastGuard autocast(placement.device.type(), placement.autocast_dtype);
      const auto pass = parts_.network.task->forward(*parts_.network.model, batch.images, batch.targets);
      std::vector<int64_t> samples(static_cast<size_t>(batch.size));
      std::iota(samples.begin(), samples.end(), i * batch.size);
      meter->add({.number = i, .samples = samples, .size = batch.size}, pass.loss, pass.outputs, batch.targets);
    }
    meter->read(*parts_.ranks.world);
  }

  // Takes a step with each of these batches and returns their losses. `images`: [n, batch size, 3, size, size]; `targets`: [n, batch size].
  // Must be called before any other step, and only if options.source is not "resident".
  std::vector<double> losses(const torch::Tensor& images, const torch::Tensor& targets) {
    std::vector<double> losses;
    for (int64_t i = 0; i < images.size(0); ++i) batches_.add(images[i], targets[i]);
    for (int64_t i = 0; i < images.size(0); ++i) {
      meter_.reset();
      step();
      losses.push_back(meter_.read(*parts_.ranks.world).metrics[0].value);
    }
    return losses;
  }

 private:
  void freeze_statistics() {
    const torch::NoGradGuard no_grad;
    for (int i = 0; i < 10; ++i) parts_.network.model->forward(batches_.next().images);
    for (const auto& module : parts_.network.model->modules()) {
      if (auto* norm = module->as<nn::BatchNorm2d>()) norm->freeze_statistics();
    }
  }

  engine::Parts& parts_;
  BatchSource batches_;
  task::TrainMeter meter_;
  engine::TrainStep train_step_;
  int64_t step_ = 0;
};

}  // namespace trainer::bench
