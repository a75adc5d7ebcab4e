// Training on a device that is not the CPU but uses its kernels, so that the expected values are known.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "checkpoint/saver.h"
#include "run/recipe/build.h"
#include "run/samples/open_samples.h"
#include "tests/testing/computing_device.h"
#include "tests/testing/small_run.h"
#include "tests/testing/temporary_folder.h"
#include "train/engine/step_graph.h"
#include "train/engine/training_loop.h"
#include "trainer/error.h"

namespace trainer::engine {
namespace {

using device::CudaGraphChoice;
using testing::bitwise_equal;
using testing::computing::kDevice;

// The last of the six steps of an epoch has a smaller batch. The learning rate has the same value in float32 and float64.
const std::string kText =
    "experiment: accelerator\n"
    "dataset: {name: synthetic, shape: [3, 32, 32], num_classes: 10, num_train: 44, num_validation: 8}\n"
    "dataloader: {global_batch_size: 8, num_workers: 0, drop_last: false}\n"
    "lr_scheduler: {name: constant}\n"
    "runtime: {threads: 1, device: cpu, convolution: direct, fuse: off}\n"
    "amp: {enabled: false}\n"
    "training: {epochs: 2}\n"
    "logging: {every_steps: 1}\n";
const std::string kSgd = "optimizer={name: sgd, lr: 0.03125, momentum: 0.9, nesterov: true, weight_decay: 0.001}";
const std::string kAdamW = "optimizer={name: adamw, lr: 0.0078125}";
const std::string kResNet = "model={name: resnet20}";
const std::string kDropout = "model={name: wide_resnet, depth: 10, width: 1, dropout: 0.3}";

// Fills one parameter with NaN before step `step`, and restores it before the next step.
class NonFiniteStep final : public TrainingHook {
 public:
  NonFiniteStep(Parts& parts, int64_t step) : parts_(parts), step_(step) {}
  void before_step(int64_t step) override {
    const torch::NoGradGuard no_grad;
    auto weight = parts_.network.model->parameters().front();
    if (step == step_) {
      before_ = weight.detach().clone();
      weight.fill_(std::numeric_limits<float>::quiet_NaN());
    }
    if (step == step_ + 1 && before_.defined()) weight.copy_(before_);
  }

 private:
  Parts& parts_;
  int64_t step_;
  torch::Tensor before_;
};

struct Settings {
  c10::Device device = kDevice;
  CudaGraphChoice graph = CudaGraphChoice::kOff;
  bool has_scaler = false;
  int64_t non_finite_step = -1;
  std::filesystem::path folder = {};  // of checkpoints, the newest of which is resumed
  int64_t max_steps = -1;             // number of steps after which the run is stopped; -1: never
};

std::unique_ptr<Parts> make_parts(const config::Experiment& experiment, const Settings& settings, Logger& logger) {
  auto placement = device::choose_placement(recipe::placement_options(experiment), {}, {});
  placement.device = settings.device;
  if (!settings.device.is_cpu()) placement.cuda = testing::computing::recording_module();
  placement.cuda_graph = settings.graph;
  auto recipe = recipe::recipe_of(experiment, logger);
  const Ranks ranks;
  auto network = recipe::make_network(recipe, placement, ranks);
  if (settings.has_scaler) network.grad_scaler.emplace(amp::GradScalerOptions{.init_scale = 1024}, placement.device);
  auto samples = samples::open_samples(experiment, logger);
  auto sampler = recipe::make_sampler(recipe, samples.train);
  auto data = recipe::make_data(recipe, network.placement, ranks,
                                make_training_samples(std::move(samples), std::move(sampler), experiment.dataloader.shards, ranks));
  auto lr_schedule = recipe::make_lr_schedule(recipe, data.plan);
  return std::make_unique<Parts>(std::move(network), std::move(data), std::move(lr_schedule), ranks, experiment.distributed.data_parallel,
                                 experiment.training.ema);
}

struct Trained {
  std::vector<torch::Tensor> state, averages;  // on the CPU
  std::vector<double> losses;
  std::vector<std::string> warnings;
};

Trained train(const std::vector<std::string>& overrides, const Settings& settings) {
  const auto experiment = config::load_text(kText, "test.yaml", overrides, recipe::all_registries());
  const auto logger = make_quiet_logger();
  const auto parts = make_parts(experiment, settings, *logger);
  testing::Recorder events;
  std::optional<checkpoint::Saver> saver;
  if (!settings.folder.empty()) saver.emplace(checkpoint::Store(settings.folder, /*keep_last=*/3), /*pin_memory=*/false);
  int64_t num_asked = 0;
  const auto should_stop = [&] { return settings.max_steps >= 0 && num_asked++ >= settings.max_steps; };
  TrainingLoop loop(recipe::recipe_of(experiment, *logger).options.loop, *parts, events, should_stop,
                    {.checkpoints = {.saver = saver ? &*saver : nullptr}});
  if (const auto files = checkpoint::list_checkpoints(settings.folder); !files.empty()) {
    loop.resume(checkpoint::load(files.front()), files.front());
  }
  NonFiniteStep hook(*parts, settings.non_finite_step);
  loop.add_hook(hook);
  EXPECT_EQ(loop.run(), settings.max_steps < 0);
  Trained trained;
  const auto on_cpu = [&] {
    std::vector<torch::Tensor> tensors;
    for (const auto& tensor : testing::state_of(*parts)) {
      EXPECT_EQ(tensor.device(), settings.device);
      tensors.push_back(tensor.detach().to(torch::kCPU, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true));
    }
    return tensors;
  };
  trained.state = on_cpu();
  if (parts->ema) {
    parts->ema->swap();
    trained.averages = on_cpu();
  }
  for (const auto& line : events.train) trained.losses.push_back(line.metrics[0].value);
  for (const auto& event : events.validation) trained.losses.push_back(event.metrics[0].value);
  for (const auto& warning : events.warnings) trained.warnings.push_back(warning.message);
  return trained;
}

void expect_equal(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.warnings, b.warnings);
  EXPECT_TRUE(bitwise_equal(a.state, b.state));
}

TEST(Accelerator, TrainingEqualsThatOnTheCpu) {
  for (const auto& optimizer :
       {kSgd, kAdamW, std::string("optimizer={name: rmsprop}"), std::string("optimizer={name: sam, lr: 0.03125}")}) {
    SCOPED_TRACE(optimizer);
    const std::vector<std::string> overrides = {kResNet, optimizer, "training.max_grad_norm=1.0", "training.ema={decay: 0.9}"};
    const auto on_device = train(overrides, {});
    const auto on_cpu = train(overrides, {.device = torch::kCPU});
    expect_equal(on_device, on_cpu);
    // On a GPU, the weight of an average is a float32 number.
    for (size_t i = 0; i < on_cpu.averages.size(); ++i) EXPECT_TRUE(at::allclose(on_device.averages[i], on_cpu.averages[i], 1e-5, 1e-6));
  }
}

TEST(Accelerator, FusedNormalisationTrainsLikeSeparateOperators) {
  // With a larger learning rate the losses of such small batches grow, and with them the differences between roundings.
  const std::vector<std::string> overrides = {kResNet, "optimizer={name: sgd, lr: 0.001953125, momentum: 0.9}", "dataset.shape=[3, 16, 16]",
                                              "training.epochs=1", "runtime.channels_last=true"};
  auto fused = overrides;
  fused.emplace_back("runtime.fuse=on");
  auto exact = overrides;
  exact.emplace_back("runtime.dtype=float64");
  const auto on_device = train(fused, {});
  const auto expected = train(exact, {.device = torch::kCPU});
  ASSERT_EQ(on_device.losses.size(), expected.losses.size());
  // The losses of separate operators in float32 differ by up to 4e-4 from those in float64, because roundings change which values pass a
  // ReLU.
  for (size_t i = 0; i < expected.losses.size(); ++i) EXPECT_NEAR(on_device.losses[i], expected.losses[i], 4e-4) << i;
  EXPECT_NE(on_device.losses, train(overrides, {}).losses);
  const auto graph = train(fused, {.graph = CudaGraphChoice::kOn});
  expect_equal(graph, on_device);
}

TEST(Accelerator, StepsThatAreNotFiniteAreSkippedAsOnTheCpu) {
  for (const bool has_scaler : {false, true}) {
    const std::vector<std::string> overrides = {kResNet, kSgd, "training.on_non_finite=skip"};
    const auto on_device = train(overrides, {.has_scaler = has_scaler, .non_finite_step = 7});
    expect_equal(on_device, train(overrides, {.device = torch::kCPU, .has_scaler = has_scaler, .non_finite_step = 7}));
    EXPECT_EQ(on_device.warnings.size(), has_scaler ? 0U : 1U);
    for (const auto& tensor : on_device.state) EXPECT_TRUE(tensor.isfinite().all().item<bool>());
  }
}

TEST(Accelerator, StepsOfAGraphEqualThoseWithout) {
  const std::vector<std::vector<std::string>> all = {
      {kResNet, kSgd, "training.max_grad_norm=1.0", "training.ema={decay: 0.9}", "optimizer.groups=[{parameters: [fc], lr_factor: 0.5}]"},
      {kResNet, kAdamW, "logging.histograms_every_epochs=1", "lr_scheduler={name: step, step_epochs: 1, gamma: 0.5}"},
      {kDropout, kSgd, "dataset.batch_transforms=[mixup: {}]"},
      {"model={name: demo_conv}", kSgd},
  };
  for (const auto& overrides : all) {
    for (const bool has_scaler : {false, true}) {
      SCOPED_TRACE(overrides.front() + overrides[1] + (has_scaler ? " with a scaler" : ""));
      const auto eager = train(overrides, {.has_scaler = has_scaler});
      const auto graph = train(overrides, {.graph = CudaGraphChoice::kOn, .has_scaler = has_scaler});
      expect_equal(graph, eager);
      EXPECT_TRUE(bitwise_equal(graph.averages, eager.averages));
    }
  }
}

TEST(Accelerator, AGraphSkipsStepsThatAreNotFinite) {
  for (const bool has_scaler : {false, true}) {
    const std::vector<std::string> overrides = {kResNet, kSgd, "training.on_non_finite=skip", "training.ema={decay: 0.9}"};
    const auto eager = train(overrides, {.has_scaler = has_scaler, .non_finite_step = 7});
    const auto graph = train(overrides, {.graph = CudaGraphChoice::kOn, .has_scaler = has_scaler, .non_finite_step = 7});
    expect_equal(graph, eager);
    EXPECT_TRUE(bitwise_equal(graph.averages, eager.averages));
  }
}

TEST(Accelerator, AResumedTrainingEqualsAStraightOne) {
  for (const auto graph : {CudaGraphChoice::kOff, CudaGraphChoice::kOn}) {
    const std::vector<std::string> overrides = {kDropout, kAdamW, "training.ema={decay: 0.9}"};
    const auto straight = train(overrides, {.graph = graph, .has_scaler = true});
    const testing::TemporaryFolder folder;
    train(overrides, {.graph = graph, .has_scaler = true, .folder = folder.path(), .max_steps = 5});
    const auto resumed = train(overrides, {.graph = graph, .has_scaler = true, .folder = folder.path()});
    EXPECT_TRUE(bitwise_equal(resumed.state, straight.state));
    EXPECT_TRUE(bitwise_equal(resumed.averages, straight.averages));
    // The losses of the last seven steps and both validations.
    EXPECT_EQ(resumed.losses.size(), 9U);
    EXPECT_TRUE(std::equal(resumed.losses.rbegin(), resumed.losses.rend(), straight.losses.rbegin()));
  }
}

TEST(Accelerator, AnInterruptedRecordingChangesNothing) {
  const std::vector<std::string> overrides = {kDropout, kAdamW, "training.max_grad_norm=1.0", "training.ema={decay: 0.9}"};
  const auto eager = train(overrides, {.has_scaler = true});
  // In the forward pass, in the backward pass and in the update.
  for (const size_t most : {20, 120, 240}) {
    SCOPED_TRACE(most);
    testing::computing::most_recorded = most;
    auto interrupted = train(overrides, {.graph = CudaGraphChoice::kAuto, .has_scaler = true});
    testing::computing::most_recorded = std::numeric_limits<size_t>::max();
    EXPECT_EQ(interrupted.warnings, std::vector<std::string>{"a step of this network cannot be recorded as a CUDA graph (the recording was "
                                                             "interrupted); the training runs without one"});
    interrupted.warnings.clear();
    expect_equal(interrupted, eager);
    EXPECT_TRUE(bitwise_equal(interrupted.averages, eager.averages));
  }
}

TEST(Accelerator, AStepThatReadsAValueCannotBeRecorded) {
  const auto experiment = config::load_text(kText, "test.yaml", {kResNet, kSgd}, recipe::all_registries());
  const auto logger = make_quiet_logger();
  const auto parts = make_parts(experiment, {.graph = CudaGraphChoice::kOn}, *logger);
  const auto graph = StepGraph::make_if_possible(*parts, {});
  ASSERT_NE(graph, nullptr);
  const DeviceBatch batch{torch::zeros({2, 3}, kDevice), torch::zeros({2}, torch::TensorOptions(kDevice).dtype(torch::kInt64))};
  const auto step = [](const DeviceBatch& used) { used.images.sum().item<float>(); };
  for (int i = 0; i < 3; ++i) graph->run(batch, step);
  try {
    graph->run(batch, step);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "a step of this network cannot be recorded as a CUDA graph (a value was read in a recording); set "
                 "runtime.cuda_graph: off");
  }
}

}  // namespace
}  // namespace trainer::engine
