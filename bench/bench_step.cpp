// Training steps of the program, as bench.py measures them: SGD with momentum, cross entropy, settings chosen by `auto`.

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "bench/serve.h"
#include "config/load.h"
#include "engine/catalog.h"
#include "engine/train_step.h"
#include "world/host_resources.h"

namespace {

using namespace trainer;

config::Experiment make_experiment(const std::string& network, int64_t batch_size, const std::string& data) {
  const auto text = fmt::format(
      "experiment: bench\nmodel: {{name: {}}}\n"
      "dataset:\n  name: cifar10\n  root: {}\n  train_transforms:\n"
      "    - random_crop: {{size: 32, padding: 4}}\n    - random_horizontal_flip\n"
      "    - normalize: {{mean: [0.4914, 0.4822, 0.4465], std: [0.2470, 0.2435, 0.2616]}}\n"
      "dataloader: {{batch_size: {}}}\n"
      "optimizer: {{name: sgd, lr: 0.01, momentum: 0.9, weight_decay: 5.0e-4, nesterov: true}}\ntraining: {{epochs: 1}}\n",
      network, data, batch_size);
  static const auto catalog = engine::make_catalog();
  return config::load_text(text, "bench", network == "resnet18" ? std::vector<std::string>{"model.stem=cifar"} : std::vector<std::string>{},
                           catalog);
}

// Hands out batches for ever: eight ready ones in memory, or the loader's.
class BatchSource {
 public:
  BatchSource(engine::Parts& parts, bool resident) : parts_(parts) {
    const auto& placement = parts.placement;
    for (int i = 0; resident && i < 8; ++i) {
      const auto images = torch::randn({parts.plan.batch_size, 3, 32, 32}).to(placement.input_dtype).contiguous(placement.memory_format);
      resident_.push_back({images, torch::randint(0, 10, {parts.plan.batch_size}, torch::kInt64), parts.plan.batch_size});
    }
  }

  const input::Batch& next() {
    if (!resident_.empty()) return resident_[static_cast<size_t>(count_++) % resident_.size()];
    const auto* batch = count_ == 0 ? nullptr : parts_.train.loader->next();
    if (batch == nullptr) {
      parts_.sampler->set_epoch(epoch_);
      auto indices = parts_.sampler->indices();
      indices.resize(static_cast<size_t>(parts_.plan.batches_per_epoch * parts_.plan.batch_size));
      parts_.train.loader->start_epoch(epoch_++, std::move(indices));
      batch = parts_.train.loader->next();
    }
    ++count_;
    return *batch;
  }

 private:
  engine::Parts& parts_;
  std::vector<input::Batch> resident_;
  int64_t count_ = 0;
  int64_t epoch_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Training steps, measured by bench.py");
  std::string network;
  std::string source = "pipeline";
  std::string data;
  int64_t batch_size = 128;
  app.add_option("--network", network)->required();
  app.add_option("--batch-size", batch_size);
  app.add_option("--input", source)->check(CLI::IsMember({"resident", "pipeline"}));
  app.add_option("--data", data)->required();
  CLI11_PARSE(app, argc, argv);

  const auto experiment = make_experiment(network, batch_size, data);
  device::configure_cpu_allocator();
  const auto placement = device::choose_placement(experiment.runtime, experiment.amp, {}, world::available_cpus(), nullptr);
  device::apply_placement(placement, experiment.runtime);
  auto parts = engine::build_parts(experiment, placement);
  const auto logger = make_quiet_logger();
  engine::open_data(experiment, parts, *logger);
  parts.model->train();

  BatchSource batches(parts, source == "resident");
  metrics::ScoreMeter meter(placement.device, /*has_classes=*/true, /*with_top5=*/false);
  engine::TrainStep train_step(parts, 0, std::nullopt, meter);
  int64_t step = 0;
  bench::serve({{"network", network}, {"input", source}, {"placement", device::to_string(placement)}}, [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i, ++step) {
      const auto& batch = batches.next();
      train_step.micro_step(batch, step, 0, batch.size);
      train_step.update(parts.optimizer->base_lr());
    }
    if (!std::isfinite(meter.read().loss)) throw std::runtime_error("the loss is not finite: the figures would mean nothing");
  });
}
