#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "run/recipe/build.h"
#include "tests/testing/small_run.h"
#include "train/engine/training_loop.h"
#include "trainer/error.h"

namespace trainer::engine {
namespace {

using testing::bitwise_equal;
using testing::ema_value_of;
using testing::loss_of;
using testing::SmallRun;
using testing::state_of;
using testing::train_text;
using testing::value_of;

// ResNet-20 on the bundled images, with crop and flip.
std::string images_text() {
  return fmt::format(
      "experiment: images\n"
      "model: {{name: resnet20}}\n"
      "dataset:\n"
      "  name: cifar10\n"
      "  root: {}/datasets/cifar10_sample\n"
      "  train_transforms: [{{random_crop: {{size: 32, padding: 4}}}}, random_horizontal_flip,"
      " {{normalize: {{mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}}}}]\n"
      "dataloader: {{batch_size: 32}}\n"
      "optimizer: {{name: sgd, lr: 0.05, momentum: 0.9}}\n"
      "training: {{epochs: 1}}\n"
      "amp: {{enabled: false}}\n"
      "logging: {{every_steps: 2}}\n",
      TRAINER_SOURCE_DIR);
}

constexpr const char* kRandom =
    "experiment: random\n"
    "model: {name: demo_conv}\n"
    "dataset: {name: synthetic, shape: [3, 32, 32], num_classes: 10, num_train: 40, num_validation: 12}\n"
    "dataloader: {batch_size: 8}\n"
    "optimizer: {name: sgd, lr: 0.001, momentum: 0.9}\n"
    "validation: {batch_size: 5}\n"
    "runtime: {dtype: float64}\n"
    "training: {epochs: 2}\n"
    "logging: {every_steps: 2}\n";

void expect_equal_runs(const SmallRun& a, const SmallRun& b) {
  ASSERT_EQ(a.events.train.size(), b.events.train.size());
  for (size_t i = 0; i < a.events.train.size(); ++i) {
    EXPECT_EQ(loss_of(a.events.train[i]), loss_of(b.events.train[i])) << "line " << i;
    EXPECT_EQ(value_of(a.events.train[i], "top1"), value_of(b.events.train[i], "top1")) << "line " << i;
  }
  EXPECT_TRUE(bitwise_equal(state_of(a.parts()), state_of(b.parts())));
}

TEST(Trainer, IsBitwiseEqualForAnyNumberOfWorkers) {
  const auto text = images_text();
  const auto reference = train_text(text, {"dataloader.num_workers=0"}, 6);
  ASSERT_EQ(reference.events.train.size(), 3U);
  for (const char* workers : {"dataloader.num_workers=0", "dataloader.num_workers=1", "dataloader.num_workers=3"}) {
    SCOPED_TRACE(workers);
    expect_equal_runs(reference, train_text(text, {workers, "dataloader.prefetch=2"}, 6));
  }
  const auto other_seed = train_text(text, {"seed=43"}, 6);
  EXPECT_NE(loss_of(reference.events.train[0]), loss_of(other_seed.events.train[0]));
}

TEST(Trainer, ASplitThatLeavesNoImageOnOneSideIsRefused) {
  for (const std::string split : {"0.001", "0.999"}) {
    try {
      testing::SmallSession(kRandom, {"dataset.validation_split=" + split});
      FAIL();
    } catch (const UsageError& error) {
      EXPECT_EQ(error.what(), "command line: dataset.validation_split: " + split +
                                  " of 40 images leaves no images for training or none for validation; choose another fraction");
    }
  }
}

TEST(Trainer, ReportsEachEvent) {
  const auto run = train_text(kRandom);
  EXPECT_TRUE(run.done);
  EXPECT_EQ(run.events.start.steps_per_epoch, 5);
  EXPECT_EQ(run.events.start.num_parameters, 3 * 16 * 9 + 16 + 14400 * 10 + 10);
  ASSERT_EQ(run.events.train.size(), 6U);  // after steps 2, 4 and 5 of each epoch
  EXPECT_EQ(run.events.train[2].step, 5);
  EXPECT_EQ(run.events.train[3].step_in_epoch, 2);
  ASSERT_EQ(run.events.validation.size(), 2U);
  EXPECT_EQ(run.events.validation[0].num_samples, 12);
  ASSERT_EQ(run.events.epochs.size(), 2U);
  const auto& lines = run.events.train;
  EXPECT_DOUBLE_EQ(reporting::value_of(run.events.epochs[0].train_metrics, "loss").value(),
                   (2 * loss_of(lines[0]) + 2 * loss_of(lines[1]) + loss_of(lines[2])) / 5);
  EXPECT_EQ(run.events.end.reason, "done");
  EXPECT_EQ(run.events.end.step, 10);
  EXPECT_EQ(run.events.end.monitor, "validation/top1");
  ASSERT_TRUE(run.events.end.best_validation.has_value());
  EXPECT_GE(value_of(*run.events.end.best_validation, "top1").value(), value_of(*run.events.end.final_validation, "top1").value());
}

TEST(Trainer, AccumulatedMicroStepsEqualOneBigBatch) {
  const auto whole = train_text(kRandom, {"dataloader.batch_size=16", "dataloader.drop_last=false"});
  const auto parts = train_text(kRandom, {"dataloader.batch_size=4", "training.accumulation_steps=4", "dataloader.drop_last=false"});
  // 40 samples: two groups of 16 and a short one of 8 in both.
  ASSERT_EQ(whole.events.start.steps_per_epoch, 3);
  ASSERT_EQ(parts.events.start.steps_per_epoch, 3);
  const auto a = state_of(whole.parts());
  const auto b = state_of(parts.parts());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_LT((a[i] - b[i]).abs().max().item<double>(), 1e-13);
  EXPECT_NEAR(loss_of(*whole.events.end.final_validation), loss_of(*parts.events.end.final_validation), 1e-12);
}

TEST(Trainer, ValidationDoesNotDependOnItsBatches) {
  const auto small = train_text(kRandom, {"validation.batch_size=5"});
  const auto large = train_text(kRandom, {"validation.batch_size=500"});
  EXPECT_EQ(value_of(*small.events.end.final_validation, "top1").value(), value_of(*large.events.end.final_validation, "top1").value());
  EXPECT_NEAR(loss_of(*small.events.end.final_validation), loss_of(*large.events.end.final_validation), 1e-12);
}

TEST(Trainer, StopsAtAStepOnRequest) {
  const auto run = train_text(kRandom, {}, 3);
  EXPECT_FALSE(run.done);
  EXPECT_EQ(run.events.end.reason, "stopped");
  EXPECT_EQ(run.events.end.step, 3);
}

TEST(Trainer, AStopDuringValidationReportsNoValidation) {
  const auto run = train_text(kRandom, {}, 6);  // five steps, one validation batch
  EXPECT_FALSE(run.done);
  EXPECT_TRUE(run.events.validation.empty());
  EXPECT_EQ(run.events.end.reason, "stopped");
}

TEST(Trainer, WithoutClassesTheLossIsMonitored) {
  const auto run = train_text(
      "experiment: mse\nmodel: {name: demo_linear}\nloss: {name: mse}\n"
      "dataset: {name: synthetic, shape: [10], num_classes: 0, num_targets: 10, num_train: 64, num_validation: 32}\n"
      "dataloader: {batch_size: 8}\noptimizer: {name: sgd, lr: 0.01}\ntraining: {epochs: 3}\n");
  EXPECT_EQ(run.events.end.monitor, "validation/loss");
  EXPECT_FALSE(value_of(run.events.train[0], "top1").has_value());
  EXPECT_FALSE(value_of(*run.events.end.final_validation, "top1").has_value());
  EXPECT_LE(loss_of(*run.events.end.best_validation), loss_of(run.events.validation[0]));
}

TEST(Trainer, HeldOutPartOfTheTrainingSet) {
  const auto run = train_text(kRandom, {"dataset.validation_split=0.25"});
  EXPECT_EQ(run.parts().data.train.samples.dataset().size(), 30);
  EXPECT_EQ(run.parts().data.validation->samples.dataset().size(), 10);
  EXPECT_EQ(run.events.validation[0].num_samples, 10);
  EXPECT_THROW(train_text(kRandom, {"dataset.validation_split=0.001"}), UsageError);
}

// Averaged parameters do not influence the training.
TEST(Trainer, AveragedParametersAreEvaluatedToo) {
  const auto without = train_text(kRandom);
  const auto with = train_text(kRandom, {"training.ema.decay=0.9"});
  expect_equal_runs(with, without);
  ASSERT_EQ(with.events.validation.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    const auto& event = with.events.validation[i];
    EXPECT_EQ(loss_of(event), loss_of(without.events.validation[i]));
    EXPECT_EQ(value_of(event, "top1"), value_of(without.events.validation[i], "top1"));
    EXPECT_FALSE(ema_value_of(without.events.validation[i], "loss").has_value());
    EXPECT_GT(std::abs(ema_value_of(event, "loss").value() - loss_of(event)), 1e-6);
    EXPECT_TRUE(ema_value_of(event, "top1") && ema_value_of(event, "top5"));
    EXPECT_TRUE(value_of(event, "macro_f1").has_value());
    EXPECT_FALSE(ema_value_of(event, "macro_f1").has_value());
  }
  // With decay 0 the averaged parameters equal those of the model.
  const auto last = *train_text(kRandom, {"training.ema={decay: 0}"}).events.end.final_validation;
  EXPECT_NEAR(ema_value_of(last, "loss").value(), loss_of(last), 1e-12);
  EXPECT_EQ(ema_value_of(last, "top1"), value_of(last, "top1"));
  EXPECT_EQ(ema_value_of(last, "top5"), value_of(last, "top5"));
}

// The loss and top1 of the validation set, from outputs averaged over the six views of flip_and_shift.
std::pair<double, double> scores_of_six_views(Parts& parts) {
  const torch::InferenceMode inference;
  parts.network.model->eval();
  const int64_t num_samples = parts.data.validation->samples.dataset().size();
  std::vector<int64_t> indices(static_cast<size_t>(num_samples));
  std::iota(indices.begin(), indices.end(), 0);
  parts.data.validation->batches->start_epoch(0, [&](int /*rank*/) {
    RankShard shard{.samples = data::SampleList(indices), .batch_sizes = {}};
    const int64_t batch_size = parts.data.validation->batches->batch_size();
    for (int64_t first = 0; first < num_samples; first += batch_size)
      shard.batch_sizes.push_back(std::min(batch_size, num_samples - first));
    return shard;
  });
  double loss = 0;
  int64_t num_right = 0;
  while (const auto* batch = parts.data.validation->batches->next()) {
    const auto padded = at::reflection_pad2d(batch->images, {1, 1, 1, 1});
    std::vector<torch::Tensor> outputs;
    for (const int64_t offset : {0, 1, 1, 2}) {  // the image that is not shifted counts twice
      const auto view = padded.slice(2, offset, offset + 32).slice(3, offset, offset + 32);
      for (const auto& side : {view, view.flip(-1)}) outputs.push_back(parts.network.model->forward(side.contiguous()));
    }
    const auto mean = torch::stack(outputs).mean(0);
    loss += at::cross_entropy_loss(mean, batch->targets, {}, at::Reduction::Sum).item<double>();
    num_right += mean.argmax(1).eq(batch->targets).sum().item<int64_t>();
  }
  return {loss / static_cast<double>(num_samples), static_cast<double>(num_right) / static_cast<double>(num_samples)};
}

TEST(Trainer, ValidationAveragesTheOutputsOfTheViews) {
  const std::vector<std::string> overrides = {"model={name: demo_conv}", "runtime.dtype=float64", "optimizer.lr=0.001",
                                              "training.ema={decay: 0.9}"};
  auto with_views = overrides;
  with_views.emplace_back("validation.tta=flip_and_shift");
  const auto run = train_text(images_text(), with_views);
  const auto without = train_text(images_text(), overrides);
  expect_equal_runs(run, without);
  const auto& validation = *run.events.end.final_validation;
  EXPECT_GT(std::abs(loss_of(validation) - loss_of(*without.events.end.final_validation)), 1e-6);
  auto& parts = run.parts();
  const auto [loss, top1] = scores_of_six_views(parts);
  EXPECT_NEAR(loss_of(validation), loss, 1e-10);
  EXPECT_EQ(value_of(validation, "top1"), top1);
  const optim::AveragedParameters averaged(*parts.ema);
  const auto [ema_loss, ema_top1] = scores_of_six_views(parts);
  EXPECT_NEAR(ema_value_of(validation, "loss").value(), ema_loss, 1e-10);
  EXPECT_EQ(ema_value_of(validation, "top1"), ema_top1);
}

TEST(Trainer, GradientClippingAndAdamWTrain) {
  const auto run =
      train_text(kRandom, {"optimizer={name: adamw, lr: 0.001}", "training.max_grad_norm=0.1", "optimizer.decay_norm_and_bias=false"});
  EXPECT_TRUE(run.done);
  EXPECT_TRUE(std::isfinite(loss_of(run.events.train.back())));
}

TEST(Trainer, AClippedStepMovesTheParametersByTheLargestNorm) {
  const std::vector<std::string> overrides = {"optimizer={name: sgd, lr: 1}", "training.max_grad_norm=0.1"};
  testing::SmallSession untrained(kRandom, overrides);
  const auto before = untrained.parts().network.model->parameters();
  const auto run = train_text(kRandom, overrides, /*max_steps=*/1);
  const auto after = run.parts().network.model->parameters();
  double squares = 0;
  for (size_t i = 0; i < before.size(); ++i) squares += (after[i] - before[i]).square().sum().item<double>();
  // clip_grad_norm adds 1e-6 to the norm that it divides by.
  EXPECT_NEAR(std::sqrt(squares), 0.1, 1e-5);
}

TEST(Trainer, Bfloat16AutocastStaysNearFloat32) {
  const auto full = train_text(kRandom, {"runtime.dtype=float32", "amp.enabled=false"}, 4);
  const auto mixed = train_text(kRandom, {"runtime.dtype=float32", "amp.enabled=true"}, 4);
  // bfloat16 has 8 significant bits, so losses near 2.3 may differ in the third digit.
  EXPECT_NEAR(loss_of(full.events.train[0]), loss_of(mixed.events.train[0]), 0.05);
  EXPECT_NE(loss_of(full.events.train[0]), loss_of(mixed.events.train[0]));
}

TEST(Trainer, TrainsWithStrictDeterminism) {
  const auto put = [] { torch::zeros({4}).put_(torch::zeros({1}, torch::kInt64), torch::ones({1})); };
  EXPECT_TRUE(train_text(kRandom, {"runtime.deterministic=true", "training.epochs=1"}).done);
  EXPECT_THROW(put(), c10::Error) << "an operation without a deterministic implementation has to be refused";
  EXPECT_TRUE(train_text(kRandom, {"training.epochs=1"}).done);
  EXPECT_NO_THROW(put());
}

TEST(BuildParts, TheNetworkChoosesTheMemoryFormatWhenItIsAuto) {
  const auto format = [](const std::string& model, const std::string& channels_last) {
    const auto experiment =
        config::load_text(kRandom, "test.yaml", {"model.name=" + model, "runtime.dtype=float32", "runtime.channels_last=" + channels_last},
                          recipe::all_registries());
    const auto placement = device::choose_placement(recipe::placement_options(experiment), {}, {});
    return recipe::build_network(experiment, placement).placement.memory_format;
  };
  EXPECT_EQ(format("demo_conv", "auto"), torch::MemoryFormat::Contiguous);
  EXPECT_EQ(format("resnet20", "auto"), torch::MemoryFormat::ChannelsLast);
  EXPECT_EQ(format("demo_conv", "true"), torch::MemoryFormat::ChannelsLast);
  EXPECT_EQ(format("resnet20", "false"), torch::MemoryFormat::Contiguous);
}

}  // namespace
}  // namespace trainer::engine
