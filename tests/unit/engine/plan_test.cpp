#include "engine/plan.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace trainer::engine {
namespace {

config::Experiment experiment_with(std::optional<int64_t> batch_size, std::optional<int64_t> global_batch_size, int64_t accumulation_steps,
                                   bool drop_last) {
  config::Experiment experiment;
  experiment.dataloader.batch_size = batch_size;
  experiment.dataloader.global_batch_size = global_batch_size;
  experiment.dataloader.drop_last = drop_last;
  experiment.training.accumulation_steps = accumulation_steps;
  experiment.training.epochs = 3;
  return experiment;
}

TEST(Plan, DropsTheLastBatchOrKeepsIt) {
  const auto dropped = make_plan(experiment_with(32, std::nullopt, 1, true), 100, 1);
  EXPECT_EQ(dropped.batches_per_epoch, 3);
  EXPECT_EQ(dropped.total_steps, 9);
  const auto kept = make_plan(experiment_with(32, std::nullopt, 1, false), 100, 1);
  EXPECT_EQ(kept.batches_per_epoch, 4);
  EXPECT_EQ(samples_in_group(kept, 0), 32);
  EXPECT_EQ(samples_in_group(kept, 3), 4);
}

TEST(Plan, GlobalBatchSizeIsSharedByTheMicroSteps) {
  const auto plan = make_plan(experiment_with(std::nullopt, 64, 4, true), 1000, 1);
  EXPECT_EQ(plan.batch_size, 16);
  EXPECT_EQ(plan.global_batch_size, 64);
  EXPECT_EQ(plan.batches_per_epoch, 62);
  EXPECT_EQ(plan.steps_per_epoch, 16);
  EXPECT_EQ(samples_in_group(plan, 0), 64);
  EXPECT_EQ(samples_in_group(plan, 60), 32);  // the short last group
}

TEST(Plan, MicroStepsOfAStep) {
  const auto plan = make_plan(experiment_with(8, std::nullopt, 4, true), 160, 2);  // 10 batches on each rank: groups of 4, 4 and 2
  ASSERT_EQ(plan.steps_per_epoch, 3);
  const auto whole = micro_steps_of(plan, 1, 4);
  ASSERT_EQ(whole.size(), 4U);
  EXPECT_EQ(first_batch_of(plan, 4), 4);
  EXPECT_EQ(whole[3].step, 4);
  EXPECT_EQ(whole[3].num_group_samples, 64);
  EXPECT_EQ(whole[3].stream, 7);
  EXPECT_TRUE(whole[0].is_first() && !whole[0].is_last() && whole[3].is_last());
  const auto last = micro_steps_of(plan, 0, 5);
  ASSERT_EQ(last.size(), 2U);
  EXPECT_EQ(last[1].num_group_samples, 32);
  EXPECT_EQ(last[1].stream, 2);
  EXPECT_TRUE(last[1].is_last());
}

TEST(Plan, TheDefaultBatch) { EXPECT_EQ(make_plan(experiment_with(std::nullopt, std::nullopt, 1, true), 1000, 1).batch_size, 128); }

TEST(Plan, TooFewImagesForABatch) {
  EXPECT_EQ(make_plan(experiment_with(32, std::nullopt, 1, false), 5, 1).batches_per_epoch, 1);
  try {
    make_plan(experiment_with(32, std::nullopt, 1, true), 5, 1);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "dataloader.batch_size: 5 training images make no batch of 32; lower it, or set dataloader.drop_last: false");
  }
}

}  // namespace
}  // namespace trainer::engine
