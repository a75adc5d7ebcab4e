#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <cmath>

#include "base/file.h"
#include "base/log.h"
#include "tests/testing/small_run.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"
#include "trainer/trainer.h"

namespace trainer::session {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The training that the test also defines in code, as an experiment file.
std::string text() {
  return fmt::format(
      "experiment: images\n"
      "model: {{name: resnet20}}\n"
      "dataset:\n"
      "  name: cifar10\n"
      "  root: {}/datasets/cifar10_sample\n"
      "  train_transforms: [random_crop: {{size: 32, padding: 4}}, random_horizontal_flip]\n"
      "  validation_transforms: []\n"
      "dataloader: {{batch_size: 32, num_workers: 2}}\n"
      "loss: {{name: cross_entropy, label_smoothing: 0.1}}\n"
      "optimizer: {{name: sgd, lr: 0.05, momentum: 0.9, weight_decay: 0.001, decay_norm_and_bias: false}}\n"
      "lr_scheduler: {{name: cosine, warmup_steps: 3}}\n"
      "training: {{steps: 20, max_grad_norm: 1, ema: {{decay: 0.9}}}}\n"
      "validation: {{batch_size: 50}}\n"
      "logging: {{every_steps: 2}}\n",
      TRAINER_SOURCE_DIR);
}

distributed::Context& context() {
  static const auto alone = distributed::init_process_group({.device = torch::kCPU});
  return *alone;
}

std::shared_ptr<const data::Dataset> open(data::Split split) {
  const auto files = fmt::format("{{name: cifar10, root: {}/datasets/cifar10_sample}}", TRAINER_SOURCE_DIR);
  return make(datasets::dataset_registry(), files).open(split, *context().logger());
}

// Forwards the events.
class Forwarding : public reporting::Sink {
 public:
  explicit Forwarding(testing::Recorder& events) : events_(events) {}
  void on_train(const reporting::TrainEvent& event) override { events_.on_train(event); }
  void on_validation(const reporting::ValidationEvent& event) override { events_.on_validation(event); }
  void on_end(const reporting::EndEvent& event) override { events_.on_end(event); }

 private:
  testing::Recorder& events_;
};

TrainerParts parts_of(testing::Recorder& events) {
  TrainerParts parts{
      .model = [](const models::BuildContext& build) { return make(models::model_registry(), "resnet20", build); },
      .task = make(task::task_registry(), "classification", make(nn::loss_registry(), nn::CrossEntropyOptions{.label_smoothing = 0.1})),
      .optimizer =
          [](std::vector<optim::ParamGroup> groups) {
            const optim::SgdOptions sgd{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.001};
            return make(optim::optimizer_registry(), sgd, std::move(groups));
          },
      .train = open(data::Split::kTrain),
      .validation = open(data::Split::kValidation),
      .train_transforms = {data::transform_registry().configure(data::RandomCropOptions{.size = 32, .padding = 4}),
                           data::transform_registry().configure("random_horizontal_flip")},
      .lr_schedule = optim::lr_scheduler_registry().configure(optim::CosineOptions())};
  parts.sinks.push_back(std::make_unique<Forwarding>(events));
  return parts;
}

TrainerOptions options() {
  return {.plan = {.batch_size = 32, .steps = 20},
          .loop = {.max_grad_norm = 1, .validation = {.batch_size = 50}, .log_every_steps = 2},
          .loading = {.num_workers = 2},
          .placement = {.num_threads = 2},
          .parameters = {.decay_norm_and_bias = false},
          .warmup = {.steps = 3},
          .ema = optim::EmaOptions{.decay = 0.9}};
}

std::vector<torch::Tensor> state_of(const models::Model& model) {
  auto state = model.parameters();
  const auto buffers = model.buffers();
  state.insert(state.end(), buffers.begin(), buffers.end());
  return state;
}

std::vector<torch::Tensor> copy_of(std::vector<torch::Tensor> tensors) {
  for (auto& tensor : tensors) tensor = tensor.detach().clone();
  return tensors;
}

TEST(TrainerOfParts, IsBitwiseEqualToAnExperimentFile) {
  const auto of_file = testing::train_text(text());
  testing::Recorder events;
  Trainer trainer(context(), parts_of(events), options());
  const auto end = trainer.run();
  EXPECT_EQ(end.reason, "done");
  EXPECT_EQ(end.step, 20);
  EXPECT_EQ(testing::value_of(end.final_validation.value(), "loss"), testing::value_of(of_file.events.validation[0], "loss"));
  EXPECT_TRUE(testing::bitwise_equal(testing::state_of(of_file.parts()), state_of(trainer.model())));
  ASSERT_EQ(events.train.size(), of_file.events.train.size());
  for (size_t i = 0; i < events.train.size(); ++i) EXPECT_EQ(testing::loss_of(events.train[i]), testing::loss_of(of_file.events.train[i]));
  ASSERT_EQ(events.validation.size(), 1U);
  EXPECT_EQ(testing::value_of(events.validation[0], "top1"), testing::value_of(of_file.events.validation[0], "top1"));
  EXPECT_EQ(testing::ema_value_of(events.validation[0], "loss"), testing::ema_value_of(of_file.events.validation[0], "loss"));
}

TEST(TrainerOfParts, ResumesBitForBit) {
  testing::Recorder events;
  auto straight = std::make_unique<Trainer>(context(), parts_of(events), options());
  straight->run();
  const auto expected = copy_of(state_of(straight->model()));
  straight.reset();

  const testing::TemporaryFolder folder;
  auto saved = options();
  saved.checkpoint_folder = folder.path();
  int64_t asked = 0;
  EXPECT_EQ(Trainer(context(), parts_of(events), saved).run([&] { return asked++ == 3; }).reason, "stopped");
  Trainer second(context(), parts_of(events), saved);
  second.resume(folder.path() / "last.pt");
  EXPECT_EQ(second.run().reason, "done");
  EXPECT_TRUE(testing::bitwise_equal(expected, state_of(second.model())));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "best.pt"));
}

TEST(TrainerOfParts, IsUsedOnceAndAlone) {
  testing::Recorder events;
  Trainer trainer(context(), parts_of(events), options());
  EXPECT_THAT([&] { Trainer(context(), parts_of(events), options()); },
              ThrowsMessage<std::logic_error>(HasSubstr("this process has a Trainer already")));
  EXPECT_THAT([&] { trainer.resume("/nowhere/last.pt"); }, ThrowsMessage<CheckpointError>(HasSubstr("/nowhere/last.pt")));
  trainer.run([] { return true; });
  for (const auto& again : std::vector<std::function<void()>>{[&] { trainer.run(); }, [&] { trainer.resume("last.pt"); }})
    EXPECT_THAT(again, ThrowsMessage<std::logic_error>(HasSubstr("Trainer::run() was called already")));
}

TEST(TrainerOfParts, NeedsNoValidation) {
  testing::Recorder events;
  auto parts = parts_of(events);
  parts.validation = nullptr;
  EXPECT_EQ(Trainer(context(), std::move(parts), options()).run().reason, "done");
  EXPECT_TRUE(events.validation.empty());
  EXPECT_EQ(events.end.reason, "done");
}

TEST(TrainerOfParts, EvaluatesItsNetwork) {
  testing::Recorder events;
  Trainer trainer(context(), parts_of(events), options());
  const auto before = trainer.evaluate();
  EXPECT_EQ(before.num_samples, open(data::Split::kValidation)->size());
  const auto end = trainer.run();
  const auto& final = end.final_validation.value();
  EXPECT_EQ(testing::value_of(final, "loss"), reporting::value_of(trainer.evaluate().metrics, "loss"));
  EXPECT_NE(reporting::value_of(before.metrics, "loss"), reporting::value_of(trainer.evaluate().metrics, "loss"));
  EXPECT_EQ(testing::ema_value_of(final, "loss"), reporting::value_of(trainer.evaluate(nullptr, /*averaged=*/true).metrics, "loss"));
  EXPECT_EQ(trainer.evaluate(open(data::Split::kTrain)).num_samples, open(data::Split::kTrain)->size());
  const auto of_other_classes = make(datasets::dataset_registry(), "{name: synthetic, shape: [3, 32, 32], num_classes: 3}");
  EXPECT_THAT([&] { trainer.evaluate(of_other_classes.open(data::Split::kTrain, *context().logger())); },
              ThrowsMessage<UsageError>(HasSubstr("the network has 10 outputs, but there are 3 classes in the evaluated data set")));
}

TEST(TrainerOfParts, RestoresTheSettingsOfLibtorch) {
  auto& libtorch = at::globalContext();
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  libtorch.setBenchmarkCuDNN(false);
  torch::manual_seed(5);
  const auto expected = torch::rand({3});
  testing::Recorder events;
  auto chosen = options();
  chosen.placement.deterministic = true;
  chosen.placement.allow_tf32 = !libtorch.allowTF32CuBLAS();
  const bool tf32 = libtorch.allowTF32CuBLAS();
  torch::manual_seed(5);
  {
    Trainer trainer(context(), parts_of(events), chosen);
    EXPECT_EQ(at::get_num_threads(), 2);
    EXPECT_TRUE(libtorch.deterministicAlgorithms());
  }
  EXPECT_EQ(at::get_num_threads(), 1);
  EXPECT_FALSE(libtorch.deterministicAlgorithms());
  EXPECT_FALSE(libtorch.deterministicCuDNN());
  EXPECT_FALSE(libtorch.benchmarkCuDNN());
  EXPECT_EQ(libtorch.allowTF32CuBLAS(), tf32);
  EXPECT_TRUE(torch::rand({3}).equal(expected));
  at::set_num_threads(threads);
}

TEST(TrainerOfParts, EvaluatesOnlyWhatThereIs) {
  testing::Recorder events;
  auto parts = parts_of(events);
  parts.validation = nullptr;
  auto chosen = options();
  chosen.ema.reset();
  Trainer trainer(context(), std::move(parts), chosen);
  EXPECT_THAT([&] { trainer.evaluate(); }, ThrowsMessage<UsageError>(HasSubstr("there are no samples to evaluate; give a data set")));
  EXPECT_THAT([&] { trainer.evaluate(open(data::Split::kValidation), true); },
              ThrowsMessage<UsageError>(HasSubstr("there are no averaged parameters to evaluate; set TrainerOptions::ema")));
}

TEST(TrainerOfParts, ItsLogIsNotThatOfTheContext) {
  testing::Recorder events;
  const testing::TemporaryFolder folder;
  auto logged = options();
  logged.run_directory = folder.path();
  Trainer(context(), parts_of(events), logged);
  context().logger()->warn("after the Trainer");
  const auto log = read_file(folder.path() / "train.log");
  EXPECT_THAT(log, HasSubstr("info: cpu"));
  EXPECT_THAT(log, ::testing::Not(HasSubstr("after the Trainer")));
}

class Steps : public engine::TrainingHook {
 public:
  explicit Steps(std::vector<int64_t>& steps) : steps_(steps) {}
  void after_step(int64_t step) override { steps_.push_back(step); }

 private:
  std::vector<int64_t>& steps_;
};

TEST(TrainerOfParts, TakesOptimizersOfLibtorchSchedulesAndHooks) {
  testing::Recorder events;
  std::vector<int64_t> steps;
  const auto own_parts = [&] {
    auto parts = parts_of(events);
    parts.optimizer = [](std::vector<optim::ParamGroup> groups) {
      return optim::of_libtorch(std::move(groups), [](const optim::ParamGroup& group) {
        const auto of_group = torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(group.decay ? 0.001 : 0);
        return std::make_unique<torch::optim::SGD>(group.params, of_group);
      });
    };
    parts.lr_factor = [](int64_t step, int64_t total_steps) {
      return 0.5 - 0.5 * static_cast<double>(step) / static_cast<double>(total_steps);
    };
    parts.hooks.push_back(std::make_unique<Steps>(steps));
    return parts;
  };
  auto chosen = options();
  chosen.warmup = {};
  chosen.placement.autocast = false;
  // In float32 the roundings of one update, in which the optimizers differ, grow in 20 steps by a factor that depends on the processor.
  chosen.placement.dtype = device::FloatType::kFloat64;
  const testing::TemporaryFolder folder;
  auto saved = chosen;
  saved.checkpoint_folder = folder.path();
  int64_t asked = 0;
  Trainer(context(), own_parts(), saved).run([&] { return asked++ == 6; });
  auto resumed = std::make_unique<Trainer>(context(), own_parts(), saved);
  resumed->resume(folder.path() / "last.pt");
  resumed->run();
  const auto state = copy_of(state_of(resumed->model()));
  resumed.reset();
  EXPECT_EQ(steps.size(), 20U);
  EXPECT_EQ(steps.back(), 19);
  EXPECT_NEAR(events.train.back().lr, 0.05 * (0.5 - 0.5 * 19 / 20), 1e-15);

  auto of_program = parts_of(events);
  of_program.lr_schedule = read_component(optim::lr_scheduler_registry(), "{name: linear, start_factor: 0.5}");
  Trainer trainer(context(), std::move(of_program), chosen);
  trainer.run();
  // The fused updates of the program round differently.
  const auto expected = state_of(trainer.model());
  for (size_t i = 0; i < state.size(); ++i) EXPECT_TRUE(torch::allclose(state[i], expected[i], 1e-9, 1e-9)) << i;
}

TEST(TrainerOfParts, WhatCannotBeTrainedIsRefused) {
  testing::Recorder events;
  const auto refused = [&](const std::string& message, const std::function<void(TrainerParts&, TrainerOptions&)>& change) {
    const auto construct = [&] {
      auto parts = parts_of(events);
      auto chosen = options();
      change(parts, chosen);
      Trainer(context(), std::move(parts), chosen);
    };
    EXPECT_THAT(construct, ThrowsMessage<UsageError>(HasSubstr(message)));
  };
  refused("a Trainer needs TrainerParts::model", [](auto& parts, auto&) { parts.model = {}; });
  refused("a Trainer needs TrainerParts::task", [](auto& parts, auto&) { parts.task = nullptr; });
  refused("a Trainer needs TrainerParts::optimizer", [](auto& parts, auto&) { parts.optimizer = {}; });
  refused("a Trainer needs TrainerParts::train with at least one sample", [](auto& parts, auto&) { parts.train = nullptr; });
  const auto range = [&](const std::string& message, const std::function<void(TrainerOptions&)>& change) {
    refused(message, [&](auto&, auto& chosen) { change(chosen); });
  };
  range("training.steps: given together with training.epochs", [](auto& chosen) { chosen.plan.epochs = 5; });
  range("dataloader.batch_size: expected an integer >= 1 or null, not 0", [](auto& chosen) { chosen.plan.batch_size = 0; });
  range("dataloader.global_batch_size: given together with dataloader.batch_size",
        [](auto& chosen) { chosen.plan.global_batch_size = 32; });
  using Sizes = std::vector<engine::SmallerImages>;
  range("dataset.size_schedule[0].until: expected a number from 0 to 1 (0 excluded) (1 excluded), not 1",
        [](auto& chosen) { chosen.plan.size_schedule = Sizes{{.size = 16, .until = 1}}; });
  range("size_schedule: needs training.epochs instead of training.steps",
        [](auto& chosen) { chosen.plan.size_schedule = Sizes{{.size = 16, .until = 0.5}}; });
  range("size_schedule: 64 pixels are not less than the shorter edge",
        [](auto& chosen) { chosen.plan = {.epochs = 2, .size_schedule = Sizes{{.size = 64, .until = 0.5}}}; });
  range("dataloader.num_workers: expected an integer from 0 to 256", [](auto& chosen) { chosen.loading.num_workers = -1; });
  range("training.max_grad_norm: expected a number > 0 or null, not nan", [](auto& chosen) { chosen.loop.max_grad_norm = NAN; });
  range("training.early_stopping.patience: expected an integer >= 1, not 0",
        [](auto& chosen) { chosen.loop.early_stopping = engine::EarlyStoppingOptions{.patience = 0}; });
  range("lr_scheduler.warmup_epochs: expected a number >= 0", [](auto& chosen) { chosen.warmup = {.epochs = INFINITY}; });
  range("training.ema.decay: expected a number", [](auto& chosen) { chosen.ema->decay = 1; });
  range("optimizer.groups[0].lr_factor: expected a number >= 0, not -1",
        [](auto& chosen) { chosen.parameters.groups = {{.parameters = {"fc"}, .lr_factor = -1}}; });
  range("optimizer.groups[0].parameters[0]: the network has neither a layer nor a parameter \"head\"",
        [](auto& chosen) { chosen.parameters.groups = {{.parameters = {"head"}}}; });
  refused("warmup: has no effect on TrainerParts::lr_factor",
          [](auto& parts, auto&) { parts.lr_factor = [](int64_t, int64_t) { return 1.0; }; });
  refused("the function that makes an optimizer of LibTorch returned null", [](auto& parts, auto&) {
    parts.optimizer = [](auto groups) { return optim::of_libtorch(std::move(groups), [](const auto&) { return nullptr; }); };
  });
  refused("warmup: onecycle has its own warm-up; remove this one",
          [](auto& parts, auto&) { parts.lr_schedule = read_component(optim::lr_scheduler_registry(), "onecycle"); });
  refused("the schedule reduce_on_plateau needs validations", [](auto& parts, auto& chosen) {
    parts.lr_schedule = read_component(optim::lr_scheduler_registry(), "reduce_on_plateau");
    parts.validation = nullptr;
    chosen.warmup.steps = 0;
  });
  refused("monitor.metric: the task does not measure iou; choose one of its validation metrics, or auto",
          [](auto&, auto& chosen) { chosen.loop.monitor.metric = "validation/iou"; });
  refused("the network needs samples of shape 3x32x32, but those of the training samples have 3x24x24 after their transforms",
          [](auto& parts, auto&) {
            parts.model = [](const auto& build) { return make(models::model_registry(), "demo_conv", build); };
            parts.train_transforms = read_components(data::transform_registry(), "[center_crop: {size: 24}]");
          });
  refused("the network has 7 outputs, but there are 10 classes in the training samples", [](auto& parts, auto&) {
    parts.model = [](const auto& build) { return make(models::model_registry(), "{name: resnet20, num_classes: 7}", build); };
  });
  refused("accumulation_steps: the optimizer processes each batch twice", [](auto& parts, auto& chosen) {
    parts.optimizer = [](auto groups) { return make(optim::optimizer_registry(), "{name: sam, lr: 0.1}", groups); };
    chosen.plan.accumulation_steps = 2;
  });
  refused("the function that makes the network returned null",
          [](auto& parts, auto&) { parts.model = [](const auto&) { return std::shared_ptr<models::Model>(); }; });
  refused("batch_size: 2000 training samples are fewer than one batch of 2001", [](auto&, auto& chosen) { chosen.plan.batch_size = 2001; });
  const auto value_refused = [](const auto& configure, const std::string& message) {
    EXPECT_THAT(configure, ThrowsMessage<UsageError>(HasSubstr(message)));
  };
  value_refused([] { optim::optimizer_registry().configure(optim::SgdOptions{.lr = -1}); }, "sgd.lr: expected a number >= 0, not -1");
  value_refused([] { optim::optimizer_registry().configure(optim::SgdOptions{.nesterov = true}); }, "sgd.nesterov: true needs momentum");
  value_refused([] { data::transform_registry().configure(data::CenterCropOptions()); }, "center_crop.size: has 0 numbers");
  const auto text_refused = [](const std::string& yaml, const std::string& message) {
    EXPECT_THAT([&] { read_component(optim::lr_scheduler_registry(), yaml); }, ThrowsMessage<UsageError>(HasSubstr(message)));
  };
  text_refused("{name: cosin}", "text:1:8: lr_scheduler.name: \"cosin\" is not one of");
  text_refused("{name: cosine, gamma: 2}", "lr_scheduler.gamma: not a key of cosine, but of step");
  text_refused("cosin", "did you mean \"cosine\"?");
}

}  // namespace
}  // namespace trainer::session
