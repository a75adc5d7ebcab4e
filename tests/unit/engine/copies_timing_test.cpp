#include <gtest/gtest.h>

#include <chrono>

#include "tests/testing/small_run.h"

namespace trainer::engine {
namespace {

template <typename Work>
std::pair<double, double> microseconds(int count, Work work) {
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

TEST(DISABLED_Copies, Timing) {
  for (const char* model : {"resnet20", "demo_conv"}) {
    const auto text = fmt::format(
        "experiment: copies\nmodel: {{name: {}}}\ndataset: {{name: synthetic, shape: [3, 32, 32], num_classes: 10, num_train: 12800}}\n"
        "dataloader: {{batch_size: 128}}\noptimizer: {{name: sgd, lr: 0.001, momentum: 0.9}}\nruntime: {{device: cpu}}\n"
        "amp: {{enabled: false}}\ntraining: {{epochs: 1}}\n",
        model);
    const auto experiment = config::load_text(text, "test.yaml", {}, testing::catalog());
    auto parts = build_parts(experiment, device::choose_placement(experiment.runtime, experiment.amp, {}, {.num_cpus = 2}, nullptr));
    join_ranks(experiment, parts);
    open_data(experiment, parts, *make_quiet_logger());
    parts.model->train();
    auto meter = parts.task->make_train_meter(torch::kCPU);
    TrainStep step(parts, 1, std::nullopt, meter);
    input::Batch batch{torch::randn({128, 3, 32, 32}).contiguous(parts.placement.memory_format), torch::randint(0, 10, {128}, torch::kInt64), 128};
    int64_t number = 0;
    const auto whole = microseconds(60, [&] {
      step.micro_step(batch, {.step = number++, .num_group_samples = 128});
      step.update(0.001);
    });
    const auto buffers = parts.model->buffers();
    std::vector<torch::Tensor> marked;
    for (const auto& buffer : buffers) marked.push_back(torch::empty_like(buffer));
    const auto copies = microseconds(3000, [&] {
      const torch::NoGradGuard no_grad;
      if (!marked.empty()) at::_foreach_copy_(marked, buffers);
    });
    const auto mark = microseconds(3000, [&] { meter.mark(); });
    const auto outputs = torch::randn({128, 10});
    const auto targets = torch::randint(0, 10, {128}, torch::kInt64);
    const auto loss = torch::tensor(1.0F);
    const auto add = microseconds(3000, [&] { meter.add(loss, outputs, targets, 128); });
    fmt::print("{}: step {:.0f} / {:.0f} us (min / median); {} buffers copied {:.2f} / {:.2f} us; meter marked {:.2f} / {:.2f} us; meter add {:.2f} / {:.2f} us\n", model,
               whole.first, whole.second, buffers.size(), copies.first, copies.second, mark.first, mark.second, add.first, add.second);
  }
}

}  // namespace
}  // namespace trainer::engine
