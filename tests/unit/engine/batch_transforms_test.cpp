// Training with dataset.batch_transforms.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "nn/layers.h"
#include "tests/testing/small_run.h"
#include "train/engine/non_finite.h"

namespace trainer::engine {
namespace {

const std::string kMixing =
    "experiment: mixing\n"
    "model: {name: demo_conv}\n"
    "dataset: {name: synthetic, shape: [3, 32, 32], num_classes: 10, num_train: 24, num_validation: 11}\n"
    "dataloader: {batch_size: 8}\n"
    "optimizer: {name: sgd, lr: 0.01}\n"
    "validation: {batch_size: 8}\n"
    "runtime: {dtype: float64, threads: 1}\n"
    "training: {epochs: 1}\n"
    "logging: {every_steps: 1}\n";

TEST(BatchTransforms, MixTheBatchesOfTrainingAlone) {
  // With a learning rate of nearly 0, a loss depends only on the samples and targets.
  const std::string still = "optimizer.lr=1.0e-300";
  const auto plain = testing::train_text(kMixing, {still});
  for (const auto* name : {"mixup", "cutmix"}) {
    const auto mixed = testing::train_text(kMixing, {still, fmt::format("dataset.batch_transforms=[{}]", name)});
    ASSERT_EQ(mixed.events.train.size(), 3U);
    for (size_t i = 0; i < 3; ++i) EXPECT_NE(testing::loss_of(mixed.events.train[i]), testing::loss_of(plain.events.train[i])) << name;
    ASSERT_EQ(mixed.events.validation.size(), 1U);
    EXPECT_EQ(testing::loss_of(mixed.events.validation[0]), testing::loss_of(plain.events.validation[0])) << name;
  }
}

TEST(BatchTransforms, AreOffInTheLastEpochs) {
  const std::string still = "optimizer.lr=1.0e-300";
  const auto plain = testing::train_text(kMixing, {still, "training.epochs=2"});
  const auto mixed = testing::train_text(kMixing, {still, "dataset.batch_transforms=[mixup]", "training={epochs: 2, mixup_off_epochs: 1}"});
  ASSERT_EQ(mixed.events.train.size(), 6U);
  for (size_t i = 0; i < 6; ++i) {
    const auto expected = testing::loss_of(plain.events.train[i]);
    const auto loss = testing::loss_of(mixed.events.train[i]);
    if (i < 3) {
      EXPECT_NE(loss, expected) << i;
    } else {
      EXPECT_NEAR(loss, expected, 1e-14) << i;  // computed from probabilities instead of labels
    }
  }
}

// The largest absolute output of each layer in each pass of a step, and in the repetition of the step by the search of `trainer replay`.
struct Largest {
  std::vector<double> in_step;
  std::vector<double> in_search;
};

Largest largest_outputs(const std::vector<std::string>& overrides, const MicroStep& micro_step) {
  testing::SmallSession session(kMixing, overrides);
  auto& parts = session.parts();
  parts.network.model->train();
  auto meter = parts.network.task->make_train_meter(torch::kCPU);
  TrainStep train_step(parts, 1, std::nullopt, meter);
  parts.data.begin(rest_of_epoch(parts.data.plan, 0), 0);
  const auto& batch = parts.data.next();
  Largest largest;
  {
    const nn::LayerObserver observer([&](const torch::nn::Module&, const torch::Tensor& output) {
      largest.in_step.push_back(output.detach().abs().max().item<double>());
    });
    train_step.run(
        {micro_step}, [&]() -> const data::Batch& { return batch; }, /*lr=*/0);
  }
  for (const auto& observation : observe_micro_step(parts, train_step, batch, micro_step)) {
    if (observation.what.starts_with("the output of")) largest.in_search.push_back(observation.largest);
  }
  return largest;
}

TEST(BatchTransforms, BothPassesOfSamAndTheirRepetitionSeeTheSameMixedBatch) {
  for (const auto* optimizer : {"sgd", "sam"}) {
    const auto plain = std::string("optimizer.name=") + optimizer;
    const std::vector<std::string> mixing = {plain, "dataset.batch_transforms=[mixup, cutmix]"};
    const auto unmixed = largest_outputs({plain}, {.num_group_samples = 8}).in_step;
    for (int64_t step = 0; step < 3; ++step) {
      const auto largest = largest_outputs(mixing, {.step = step, .num_group_samples = 8});
      EXPECT_EQ(largest.in_search, largest.in_step) << optimizer;
      EXPECT_NE(largest.in_step, unmixed) << optimizer;
      EXPECT_NE(largest_outputs(mixing, {.step = step, .num_group_samples = 8, .stream = 1}).in_step, largest.in_step) << optimizer;
    }
  }
}

}  // namespace
}  // namespace trainer::engine
