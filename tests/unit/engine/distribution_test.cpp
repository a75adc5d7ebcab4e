// With dataset.distribution, a run has bitwise the same results as if each rank read its own samples.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "run/recipe/build.h"
#include "tests/testing/ranks.h"
#include "tests/testing/small_run.h"
#include "tests/testing/temporary_folder.h"

namespace trainer::engine {
namespace {

using Settings = std::vector<std::string>;

const std::string kImages = fmt::format(
    "experiment: distribution\n"
    "model: {{name: demo_conv}}\n"
    "dataset:\n"
    "  name: cifar10\n"
    "  root: {}/datasets/cifar10_sample\n"
    "  train_transforms: [random_crop: {{size: 32, padding: 4}}, random_horizontal_flip, normalize: {{mean: [0.5, 0.5, 0.5], std: [0.2, "
    "0.2, 0.2]}}]\n"
    "  validation_transforms: [normalize: {{mean: [0.5, 0.5, 0.5], std: [0.2, 0.2, 0.2]}}]\n"
    "dataloader: {{global_batch_size: 600}}\n"
    "optimizer: {{name: sgd, lr: 0.001, momentum: 0.9}}\n"
    "validation: {{batch_size: 150}}\n"
    "runtime: {{threads: 1}}\n"
    "amp: {{enabled: false}}\n"
    "training: {{epochs: 2}}\n"
    "logging: {{every_steps: 1}}\n",
    TRAINER_SOURCE_DIR);
// 26 samples in batches of 12: two full ones, and one of 2.
const std::string kNumbers =
    "experiment: distribution\n"
    "model: {name: demo_conv}\n"
    "dataset: {name: synthetic, shape: [3, 32, 32], num_classes: 10, num_train: 26, num_validation: 23}\n"
    "dataloader: {global_batch_size: 12, drop_last: false, shards: exact}\n"
    "optimizer: {name: sgd, lr: 0.001, momentum: 0.9}\n"
    "validation: {batch_size: 4}\n"
    "runtime: {threads: 1}\n"
    "amp: {enabled: false}\n"
    "training: {epochs: 2}\n"
    "logging: {every_steps: 1}\n";

testing::SmallRun run_of_rank0(int world_size, const std::string& text, const Settings& settings, int64_t max_steps = -1,
                               const std::filesystem::path& folder = {}) {
  testing::SmallRun first;
  testing::run_ranks(world_size, [&](distributed::ProcessGroups& groups) {
    const auto experiment = testing::SmallSession::load(text, settings);
    const auto ranks = recipe::make_ranks(experiment, groups);
    auto run = testing::train(experiment, max_steps, ranks, folder);
    EXPECT_EQ(run.parts().data.sampler.has_value(), ranks.reads_data());
    run.leave_ranks();
    if (groups.world()->rank() == 0) first = std::move(run);
  });
  return first;
}

// The loss and top1 of every event, and the EMA's loss of every validation; -1 for a value that is missing.
std::vector<double> measured(const testing::Recorder& events) {
  std::vector<double> values;
  for (const auto& event : events.train) {
    values.push_back(testing::loss_of(event));
    values.push_back(testing::value_of(event, "top1").value_or(-1));
  }
  for (const auto& event : events.validation) {
    values.push_back(testing::loss_of(event));
    values.push_back(testing::value_of(event, "top1").value_or(-1));
    values.push_back(testing::ema_value_of(event, "loss").value_or(-1));
  }
  return values;
}

void expect_the_same(const testing::SmallRun& run, const testing::SmallRun& local, const std::string& what) {
  EXPECT_EQ(measured(run.events), measured(local.events)) << what;
  EXPECT_FALSE(measured(local.events).empty());
  EXPECT_TRUE(testing::bitwise_equal(testing::state_of(run.parts()), testing::state_of(local.parts()))) << what;
}

void expect_equal_schemes(const std::vector<int>& world_sizes, const std::string& text, const Settings& settings = {},
                          const std::string& group_size = "auto") {
  for (const int world_size : world_sizes) {
    const auto local = run_of_rank0(world_size, text, settings);
    for (const char* scheme : {"scatter", "broadcast"}) {
      auto shared = settings;
      shared.push_back(fmt::format("dataset.distribution={}", scheme));
      shared.push_back("dataset.distribution_group_size=" + group_size);
      expect_the_same(run_of_rank0(world_size, text, shared), local, fmt::format("{}, {} ranks", scheme, world_size));
    }
  }
}

TEST(Distribution, AugmentedImages) { expect_equal_schemes({2}, kImages); }

TEST(Distribution, ALastSmallerBatchWithEmptyParts) { expect_equal_schemes({2, 3, 4}, kNumbers); }

TEST(Distribution, ABatchThatTheRanksCannotDivide) {
  expect_equal_schemes({3}, kNumbers, {"dataset.num_train=110", "dataloader={global_batch_size: 50, num_workers: 2}"});
}

TEST(Distribution, SeveralMicroSteps) { expect_equal_schemes({3}, kNumbers, {"training.accumulation_steps=2"}); }

TEST(Distribution, GroupsWithAReaderEach) { expect_equal_schemes({4}, kNumbers, {}, "2"); }

TEST(Distribution, TargetsThatAreNumbers) {
  expect_equal_schemes({2}, kNumbers, {"dataset.num_classes=0", "dataset.num_targets=3", "loss={name: mse}"});
}

TEST(Distribution, Bfloat16) { expect_equal_schemes({2}, kNumbers, {"amp={enabled: true, dtype: bfloat16}"}); }

TEST(Distribution, AveragedParametersAreValidatedToo) { expect_equal_schemes({2}, kNumbers, {"training.ema={decay: 0.9}"}); }

TEST(Distribution, ValidationsWithinAnEpoch) { expect_equal_schemes({2}, kNumbers, {"validation.every_steps=1"}); }

TEST(Distribution, WithoutValidation) { expect_equal_schemes({2}, kNumbers, {"validation.every_epochs=null"}); }

TEST(Distribution, SamplesToOverfit) { expect_equal_schemes({2}, kNumbers, {"training.overfit_batches=1"}); }

TEST(Distribution, ARunResumesWithinAnEpochWithAnotherScheme) {
  const auto straight = run_of_rank0(2, kNumbers, {});
  const testing::TemporaryFolder folder;
  EXPECT_FALSE(run_of_rank0(2, kNumbers, {"dataset.distribution=scatter"}, 1, folder.path()).done);
  EXPECT_FALSE(run_of_rank0(2, kNumbers, {"dataset.distribution=broadcast"}, 3, folder.path()).done);
  const auto last = run_of_rank0(2, kNumbers, {"dataset.distribution=scatter"}, -1, folder.path());
  EXPECT_EQ(last.events.end.step, 6);
  EXPECT_TRUE(testing::bitwise_equal(testing::state_of(last.parts()), testing::state_of(straight.parts())));
  EXPECT_EQ(testing::loss_of(*last.events.end.final_validation), testing::loss_of(*straight.events.end.final_validation));
}

}  // namespace
}  // namespace trainer::engine
