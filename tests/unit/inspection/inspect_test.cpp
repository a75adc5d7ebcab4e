#include "run/inspection/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/text.h"
#include "tests/testing/temporary_folder.h"

namespace trainer::inspection {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kFile =
    "experiment: a\n"
    "model: {name: demo_conv}\n"
    "dataset: {name: cifar10, root: nowhere, train_transforms: [], validation_transforms: []}\n"
    "dataloader: {batch_size: 100}\n"
    "optimizer: {name: sgd, lr: 0.1, momentum: 0.9}\n"
    "training: {epochs: 3}\n"
    "amp: {enabled: false}\n";

Inspection inspect_text(const std::string& text, const std::vector<std::string>& overrides = {}, int world_size = 1,
                        const std::function<void()>& before_measuring = {}) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "x.yaml";
  std::ofstream(file) << text;
  return inspect({.file = file, .overrides = overrides}, world_size, before_measuring);
}

// All problems in one text.
std::string problems_of(const std::vector<std::string>& overrides, int world_size = 1) {
  return join(inspect_text(kFile, overrides, world_size).problems, "\n");
}

TEST(Inspect, NeedsNoFilesOfAPublishedDataSet) {
  const auto found = inspect_text(kFile, {}, 3);
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_THAT(found.notes, IsEmpty());
  ASSERT_TRUE(found.plan);
  EXPECT_EQ(found.plan->samples_per_epoch, 50'000);
  EXPECT_EQ(found.plan->steps_per_epoch, 166);
  EXPECT_EQ(found.plan->total_steps, 498);
  EXPECT_EQ(found.batch_size, 100);
  EXPECT_EQ(found.global_batch_size, 300);
  EXPECT_EQ(found.num_repeated, 0);
  EXPECT_EQ(found.num_skipped, 200);
  EXPECT_EQ(found.layers->rows.size(), 2U);
  EXPECT_EQ(found.lr_curve.front().step, 0);
  EXPECT_EQ(found.lr_curve.back().step, 497);
  EXPECT_EQ(found.lr_curve.back().lr, 0.1);
  EXPECT_GT(found.memory->total(), 0);
}

TEST(Inspect, ReportsEverythingThatTrainingWouldRefuseTogether) {
  const auto problems = problems_of({"optimizer.lr=-1", "dataloader.batch_size=60000", "logging.everysteps=3"});
  EXPECT_THAT(problems, AllOf(HasSubstr("optimizer.lr: "), HasSubstr("logging.everysteps: unknown key"),
                              HasSubstr("dataloader.batch_size: 50000 training samples are fewer than one batch of 60000")));
  EXPECT_THAT(problems_of({"model.num_classes=11", "dataloader.batch_size=60000"}),
              AllOf(HasSubstr("demo_conv has 11 outputs"), HasSubstr("are fewer than one batch")));
}

TEST(Inspect, FindsWhatOnlyBuildingAndRunningTheNetworkShows) {
  EXPECT_THAT(problems_of({"lr_scheduler={name: cosine, warmup_epochs: 4}"}), HasSubstr("lr_scheduler.warmup_epochs"));
  const std::vector<std::string> one_pixel = {"model={name: resnet18}", "dataset={name: synthetic, shape: [3, 1, 1]}",
                                              "dataloader.batch_size=1"};
  EXPECT_THAT(problems_of(one_pixel), HasSubstr("dataloader.batch_size: the batch has only one image, so the batch normalisation "));
  EXPECT_THAT(problems_of(one_pixel, 2), "");
  EXPECT_THAT(problems_of({"model.init_from=missing.pt"}), HasSubstr("missing.pt"));
  EXPECT_THAT(problems_of({"distributed.secret_file=missing"}), "");
  EXPECT_THAT(problems_of({"distributed.secret_file=missing"}, 2), HasSubstr("distributed.secret_file missing: "));
  EXPECT_THAT(problems_of({"dataloader.sampler={name: subset, count: 60000}"}),
              HasSubstr("60000 is too large, because the training set has only"));
}

TEST(Inspect, FindsALastBatchOfOneImageOnWhichBatchNormalisationCannotTrain) {
  const auto problems = [](const std::vector<std::string>& more, int world_size = 1) {
    std::vector<std::string> overrides = {"model={name: resnet18}", "dataset={name: synthetic, num_train: 15}", "dataloader.batch_size=7",
                                          "dataloader.drop_last=false"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return problems_of(overrides, world_size);
  };
  EXPECT_THAT(problems({}), HasSubstr("dataloader.drop_last: the last batch of an epoch has only one image, so the batch normalisation "
                                      "layer4.0.bn1 would get one value per channel, whose variance is undefined; set "
                                      "dataloader.drop_last: true, or another dataloader.batch_size"));
  EXPECT_THAT(problems({"dataset.num_train=16"}), "");
  EXPECT_THAT(problems({"dataset.shape=[3, 64, 64]"}), "");  // four pixels
  EXPECT_THAT(problems({"dataloader.drop_last=true"}), "");
  EXPECT_THAT(problems({"training.epochs=null", "training.steps=2"}), "");  // ends before the last batch
  EXPECT_THAT(problems({"model.freeze=[layer4]"}), "");
  // On two ranks, the last batch has one image on each rank (16 samples), or one image in all.
  const std::vector<std::string> one_each = {"dataset.num_train=16", "dataloader.shards=exact"};
  EXPECT_THAT(problems(one_each, 2), "");
  EXPECT_THAT(problems({one_each[0], one_each[1], "distributed.sync_batch_norm=false"}, 2), HasSubstr("has only one image on rank 0, so"));
  EXPECT_THAT(problems({"dataloader.shards=exact"}, 2), HasSubstr("has only one image, so"));
}

TEST(Inspect, LeavesOutWhatAFolderThatIsNotThereWouldTell) {
  const auto found = inspect_text(kFile, {"model={name: resnet20}",
                                          "dataset={name: image_folder, root: nowhere, train_transforms: [{center_crop: {size: 32}}], "
                                          "validation_transforms: [{center_crop: {size: 32}}]}"});
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_THAT(found.notes, ElementsAre(AllOf(HasSubstr("10 classes are assumed, because their number is unknown"), HasSubstr("nowhere")),
                                       AllOf(HasSubstr("steps and learning rates are unknown"), HasSubstr("nowhere"))));
  EXPECT_TRUE(found.layers);
  EXPECT_TRUE(found.memory);
  EXPECT_EQ(found.global_batch_size, 100);
  EXPECT_FALSE(found.plan);
  EXPECT_THAT(found.lr_curve, IsEmpty());
}

TEST(Inspect, ReportsFilesThatTrainingWouldRefuse) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path() / "data_batch_1.bin") << "x";
  EXPECT_THAT(problems_of({"dataset.root=" + folder.path().string()}),
              HasSubstr("data_batch_1.bin: its size of 1 bytes is not a multiple"));
  std::ofstream(folder.path() / "data_batch_1.bin") << std::string(3073, '\0');
  EXPECT_THAT(problems_of({"dataset.root=" + folder.path().string()}), HasSubstr("data_batch_2.bin: the file is missing"));
}

int64_t bytes_of(const Inspection& found, const std::string& name) {
  for (const auto& item : found.memory->items) {
    if (item.name == name) return item.bytes;
  }
  return 0;
}

TEST(Inspect, CountsTheMemoryOfARank) {
  // demo_conv has 144,458 parameters.
  constexpr int64_t kModel = 4 * 144'458;
  const auto one = inspect_text(kFile);
  EXPECT_EQ(bytes_of(one, "model"), kModel);
  EXPECT_EQ(bytes_of(one, "gradients"), kModel);
  EXPECT_EQ(bytes_of(one, "optimizer_state"), kModel);
  EXPECT_EQ(bytes_of(one, "exchange"), 0);
  EXPECT_EQ(bytes_of(one, "checkpoint"), 2 * kModel);
  EXPECT_EQ(bytes_of(one, "dataset"), 60'000 * 3 * 32 * 32);
  // The output of the convolution, which the ReLU overwrites, is kept for backward.
  const int64_t one_output = int64_t{100} * 16 * 30 * 30 * 4;
  EXPECT_GE(bytes_of(one, "activations"), one_output);
  EXPECT_LE(bytes_of(one, "activations"), 3 * one_output);
  EXPECT_EQ(bytes_of(one, "batches"), 5 * (100 + 256) * (3 * 32 * 32 * 4 + 8));

  const auto three =
      inspect_text(kFile, {"training.ema={decay: 0.9}", "optimizer={name: adam, lr: 0.1}", "distributed.gradient_as_bucket_view=false"}, 3);
  EXPECT_EQ(bytes_of(three, "ema"), kModel);
  EXPECT_GE(bytes_of(three, "optimizer_state"), 2 * kModel);
  EXPECT_EQ(bytes_of(three, "exchange"), kModel + 3 * kModel);
}

TEST(Inspect, RunsTheStepsOfAnOptimizerWithTwoPasses) {
  const auto found = inspect_text(kFile, {"optimizer={name: sam, lr: 0.1, momentum: 0.9}"});
  EXPECT_THAT(found.problems, IsEmpty());
  ASSERT_TRUE(found.memory);
  EXPECT_EQ(bytes_of(found, "optimizer_state"), 4 * 144'458);
  ASSERT_TRUE(found.step_seconds);
  EXPECT_GT(*found.step_seconds, 0);
}

TEST(Inspect, KnowsThePlanOfAStratifiedSplitWithoutFiles) {
  for (const char* stratify : {"dataset.stratify=true", "dataset.stratify=false"}) {
    const auto found = inspect_text(kFile, {"dataset.validation_split=0.1", stratify});
    EXPECT_THAT(found.problems, IsEmpty()) << stratify;
    EXPECT_THAT(found.notes, IsEmpty()) << stratify;
    ASSERT_TRUE(found.plan) << stratify;
    EXPECT_EQ(found.plan->samples_per_epoch, 45'000) << stratify;
  }
  const auto other_classes = inspect_text(kFile, {"dataloader.sampler.name=class_balanced", "model.num_classes=11"});
  EXPECT_THAT(other_classes.notes, ElementsAre(HasSubstr("are unknown: the files of the data set do not exist")));
}

TEST(Inspect, AStepHasOneUpdateHoweverManyMicroSteps) {
  for (const char* accumulation_steps : {"training.accumulation_steps=1", "training.accumulation_steps=16"}) {
    const auto found = inspect_text(kFile, {"dataloader.batch_size=null", "dataloader.global_batch_size=16", accumulation_steps});
    ASSERT_TRUE(found.step_time) << accumulation_steps;
    EXPECT_GT(found.step_time->seconds_per_sample, 0) << accumulation_steps;
    EXPECT_GT(found.step_time->update_seconds, 0) << accumulation_steps;
    EXPECT_DOUBLE_EQ(found.step_seconds.value(), 16 * found.step_time->seconds_per_sample + found.step_time->update_seconds)
        << accumulation_steps;
  }
}

TEST(Inspect, MeasuresOnlyIfThereIsNoProblem) {
  int num_measured = 0;
  const auto count = [&] { ++num_measured; };
  for (const char* problem : {"logging.everysteps=3", "model.init_from=missing.pt", "dataloader.batch_size=60000"}) {
    EXPECT_EQ(inspect_text(kFile, {problem}, 1, count).problems.size(), 1U) << problem;
  }
  EXPECT_EQ(num_measured, 0);
  inspect_text(kFile, {}, 1, count);
  EXPECT_EQ(num_measured, 1);
}

const std::vector<std::string> kFrozenBackbone = {"model={name: resnet20, freeze: [backbone]}"};

TEST(Inspect, ARunWithCachedFeaturesIsOnePassAndStepsOfTheHead) {
  const auto images = inspect_text(kFile, kFrozenBackbone);
  auto overrides = kFrozenBackbone;
  overrides.emplace_back("training.cache_features=true");
  const auto cached = inspect_text(kFile, overrides);
  EXPECT_THAT(cached.problems, IsEmpty());
  // 50,000 training and 10,000 validation images, and three epochs of 500 steps.
  ASSERT_TRUE(images.training_seconds && cached.training_seconds && cached.features_seconds);
  EXPECT_FALSE(images.features_seconds);
  EXPECT_DOUBLE_EQ(*images.training_seconds, 1500 * *images.step_seconds);
  EXPECT_DOUBLE_EQ(*cached.training_seconds, *cached.features_seconds + 1500 * *cached.step_seconds);
  // The measured step has 100 features of 64 numbers, and only the head.
  EXPECT_LT(bytes_of(cached, "activations"), bytes_of(images, "activations"));
  EXPECT_EQ(bytes_of(cached, "gradients"), 4 * (64 * 10 + 10));

  EXPECT_THAT(problems_of({"model={name: resnet20}", "training.cache_features=true"}), HasSubstr("training.cache_features: "));
}

TEST(Inspect, EpochsBeforeUnfreezingHaveATimeOfTheirOwn) {
  auto overrides = kFrozenBackbone;
  overrides.emplace_back("training.unfreeze_after=2");
  const auto found = inspect_text(kFile, overrides);
  EXPECT_THAT(found.problems, IsEmpty());
  ASSERT_TRUE(found.frozen_step_seconds && found.training_seconds);
  EXPECT_NE(*found.frozen_step_seconds, *found.step_seconds);
  EXPECT_DOUBLE_EQ(*found.training_seconds, 1000 * *found.frozen_step_seconds + 500 * *found.step_seconds);
  EXPECT_FALSE(inspect_text(kFile, kFrozenBackbone).frozen_step_seconds);
}

TEST(Inspect, EpochsWithSmallerImagesAreCheaper) {
  const auto found =
      inspect_text(kFile, {"model={name: resnet20}", "dataset.size_schedule=[{size: 16, until: 0.4}, {size: 24, until: 0.7}]"});
  EXPECT_THAT(found.problems, IsEmpty());
  ASSERT_TRUE(found.training_seconds);
  EXPECT_DOUBLE_EQ(*found.training_seconds, 500 * (0.25 + 0.5625 + 1) * *found.step_seconds);
}

TEST(Inspect, CountsSamplesThatAreUsedTwice) {
  const auto found = inspect_text(
      kFile, {"dataset={name: synthetic, num_train: 10}", "dataloader.batch_size=2", "dataloader.shards=pad", "dataloader.drop_last=false"},
      4);
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_EQ(found.num_repeated, 2);
  EXPECT_EQ(found.num_skipped, 0);
}

}  // namespace
}  // namespace trainer::inspection
