// Runs whose length is a number of steps (training.steps).

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/ranks.h"
#include "tests/testing/small_run.h"
#include "tests/testing/temporary_folder.h"

namespace trainer::engine {
namespace {

using ::testing::ElementsAre;
using testing::train_text;

// Five steps in an epoch.
constexpr const char* kTwelveSteps =
    "experiment: steps\n"
    "model: {name: demo_conv}\n"
    "dataset: {name: synthetic, shape: [3, 32, 32], num_classes: 10, num_train: 40, num_validation: 12}\n"
    "dataloader: {batch_size: 8}\n"
    "optimizer: {name: sgd, lr: 0.001, momentum: 0.9}\n"
    "lr_scheduler: {name: linear}\n"
    "runtime: {threads: 1}\n"
    "training: {steps: 12}\n"
    "logging: {every_steps: 2}\n";

TEST(Steps, TheLastStepIsFollowedByAValidationAlsoWithinAnEpoch) {
  const auto run = train_text(kTwelveSteps);
  EXPECT_TRUE(run.done);
  EXPECT_EQ(run.events.start.num_steps, 12);
  EXPECT_EQ(run.events.start.num_epochs, 3);
  EXPECT_EQ(run.events.start.steps_per_epoch, 5);
  std::vector<std::string> lines;
  for (const auto& line : run.events.train) {
    lines.push_back(fmt::format("{}/{} {}/{}", line.epoch + 1, line.num_epochs, line.step_in_epoch, line.steps_per_epoch));
  }
  EXPECT_THAT(lines, ElementsAre("1/3 2/5", "1/3 4/5", "1/3 5/5", "2/3 2/5", "2/3 4/5", "2/3 5/5", "3/3 2/2"));
  EXPECT_GT(run.events.train.back().eta_seconds, 0);  // a validation follows
  EXPECT_EQ(train_text(kTwelveSteps, {"validation.every_epochs=null"}).events.train.back().eta_seconds, 0);
  std::vector<int64_t> validated;
  for (const auto& event : run.events.validation) validated.push_back(event.step);
  EXPECT_THAT(validated, ElementsAre(5, 10, 12));
  EXPECT_EQ(run.events.epochs.back().step, 12);
  EXPECT_EQ(run.events.end.step, 12);
  EXPECT_EQ(run.events.end.epoch, 2);
  EXPECT_EQ(run.events.end.reason, "done");
  // The schedule covers the 12 steps: at the last one, the learning rate is a twelfth of the initial one.
  EXPECT_NEAR(run.events.train.back().lr, 0.001 / 12, 1e-12);
  // Only the last epoch is validated.
  EXPECT_EQ(train_text(kTwelveSteps, {"validation.every_epochs=10"}).events.validation.size(), 1U);
}

TEST(Steps, WholeEpochsEqualThatNumberOfEpochs) {
  const auto steps = train_text(kTwelveSteps, {"training.steps=10"});
  const auto epochs = train_text(kTwelveSteps, {"training.steps=null", "training.epochs=2"});
  EXPECT_TRUE(testing::bitwise_equal(testing::state_of(steps.parts()), testing::state_of(epochs.parts())));
  ASSERT_EQ(steps.events.train.size(), epochs.events.train.size());
  for (size_t i = 0; i < epochs.events.train.size(); ++i) EXPECT_EQ(steps.events.train[i].lr, epochs.events.train[i].lr);
  EXPECT_EQ(steps.events.epochs.size(), 2U);
  EXPECT_FALSE(epochs.events.start.num_steps);
}

TEST(Steps, FewerThanAnEpochHas) {
  const auto run = train_text(kTwelveSteps, {"training.steps=3"});
  EXPECT_TRUE(run.done);
  EXPECT_EQ(run.events.end.step, 3);
  EXPECT_EQ(run.events.start.num_epochs, 1);
  EXPECT_EQ(run.events.validation.size(), 1U);
}

TEST(Steps, AFinishedRunContinuesTheEpochWithMoreSteps) {
  const std::vector<std::string> constant = {"lr_scheduler={name: constant}", "training.steps=17"};
  const auto straight = train_text(kTwelveSteps, constant);
  const testing::TemporaryFolder folder;
  const auto train_to = [&](const std::string& steps) {
    return train_text(kTwelveSteps, {"lr_scheduler={name: constant}", "training.steps=" + steps}, -1, {}, folder.path());
  };
  ASSERT_TRUE(train_to("12").done);
  const auto longer = train_to("17");
  EXPECT_EQ(longer.events.start.resume->step, 12);
  EXPECT_EQ(longer.events.train.front().step_in_epoch, 4);
  EXPECT_EQ(longer.events.end.step, 17);
  EXPECT_TRUE(testing::bitwise_equal(testing::state_of(longer.parts()), testing::state_of(straight.parts())));
  // The mean is over the whole epoch, although its first steps were in the earlier run.
  EXPECT_EQ(longer.events.epochs.front().step, 15);
  EXPECT_NEAR(reporting::value_of(longer.events.epochs.front().train_metrics, "loss").value(),
              reporting::value_of(straight.events.epochs[2].train_metrics, "loss").value(), 1e-6);
  // Nothing is left to train, even with fewer steps.
  for (const char* steps : {"17", "16"}) {
    const auto again = train_to(steps);
    EXPECT_TRUE(again.done);
    EXPECT_TRUE(again.events.train.empty());
    EXPECT_TRUE(again.events.validation.empty());
    EXPECT_EQ(again.events.end.step, 17);
  }
}

TEST(Steps, AnotherNumberOfRanksKeepsTheNumberOfSteps) {
  const testing::TemporaryFolder folder;
  ASSERT_FALSE(train_text(kTwelveSteps, {}, 2, {}, folder.path()).done);
  // With batches of 8 on each of two ranks, the rest of the epoch is two steps, and each later epoch has three.
  testing::run_ranks(2, [&](distributed::ProcessGroups& groups) {
    const auto run = train_text(kTwelveSteps, {"dataloader.drop_last=false"}, -1, make_ranks(groups), folder.path());
    EXPECT_TRUE(run.done);
    EXPECT_EQ(run.events.start.resume->step, 2);
    EXPECT_EQ(run.events.start.num_epochs, 4);
    EXPECT_EQ(run.events.end.step, 12);
    EXPECT_EQ(run.events.end.epoch, 3);
    EXPECT_EQ(run.events.train.back().num_epochs, 4);
    EXPECT_NEAR(run.events.train.back().lr, 0.001 / 12, 1e-12);
    run.leave_ranks();
  });
}

}  // namespace
}  // namespace trainer::engine
