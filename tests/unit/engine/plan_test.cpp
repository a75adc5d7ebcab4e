#include "train/engine/plan.h"

#include <gtest/gtest.h>

#include "trainer/error.h"

namespace trainer::engine {
namespace {

PlanOptions options_of(std::optional<int64_t> batch_size, std::optional<int64_t> global_batch_size, int64_t accumulation_steps,
                       bool drop_last) {
  return {.batch_size = batch_size,
          .global_batch_size = global_batch_size,
          .accumulation_steps = accumulation_steps,
          .drop_last = drop_last,
          .epochs = 3};
}

TEST(Plan, DropsTheLastBatchOrKeepsIt) {
  const auto dropped = make_plan(options_of(32, std::nullopt, 1, true), 100, 1);
  EXPECT_EQ(dropped.batches_per_epoch, 3);
  EXPECT_EQ(dropped.total_steps, 9);
  const auto kept = make_plan(options_of(32, std::nullopt, 1, false), 100, 1);
  EXPECT_EQ(kept.batches_per_epoch, 4);
  EXPECT_EQ(samples_in_step(kept, rest_of_epoch(kept, 0), 0), 32);
  EXPECT_EQ(samples_in_step(kept, rest_of_epoch(kept, 0), 3), 4);
}

TEST(Plan, GlobalBatchSizeIsSharedByTheMicroSteps) {
  const auto plan = make_plan(options_of(std::nullopt, 64, 4, true), 1000, 1);
  EXPECT_EQ(plan.batch_size, 16);
  EXPECT_EQ(plan.global_batch_size, 64);
  EXPECT_EQ(plan.batches_per_epoch, 62);
  EXPECT_EQ(plan.steps_per_epoch, 16);
  EXPECT_EQ(samples_in_step(plan, rest_of_epoch(plan, 0), 0), 64);
  EXPECT_EQ(samples_in_step(plan, rest_of_epoch(plan, 0), 15), 32);  // the short last group
}

TEST(Plan, NumbersThatAreTooLargeAreNamed) {
  const auto error_of = [](const PlanOptions& options) -> std::string {
    try {
      make_plan(options, 2000, 2);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  constexpr int64_t kLarge = 9'000'000'000'000'000'000;
  const auto starts_with = [](const std::string& text, const std::string& begin) { return text.substr(0, begin.size()) == begin; };
  EXPECT_EQ(error_of(options_of(10, std::nullopt, kLarge, true)),
            "accumulation_steps: a batch of 10 samples x 2 ranks x 9000000000000000000 accumulation steps is more than "
            "the 1125899906842624 samples that a step may have; lower this value");
  EXPECT_TRUE(starts_with(error_of(options_of(kLarge, std::nullopt, 1, false)), "batch_size: a batch of 9000000000000000000 samples x"));
  EXPECT_TRUE(starts_with(error_of(options_of(std::nullopt, kLarge, 1, false)), "global_batch_size: a batch of 4500000000000"));
  auto long_training = options_of(10, std::nullopt, 1, true);
  long_training.epochs = kLarge;
  EXPECT_TRUE(starts_with(error_of(long_training), "epochs: 9000000000000000000 epochs of 100 steps are more than "));
  long_training.epochs = std::nullopt;
  long_training.steps = kLarge;
  EXPECT_EQ(error_of(long_training),
            "steps: 9000000000000000000 is more than 1125899906842624 steps; lower this value, and limit the time of a run "
            "with training.max_minutes");
  // The global batch has 2^50 samples, the largest number that is accepted.
  const auto plan = make_plan(options_of(int64_t{1} << 24, std::nullopt, int64_t{1} << 25, false), 2000, 2);
  EXPECT_EQ(plan.steps_per_epoch, 1);
  EXPECT_EQ(samples_in_step(plan, rest_of_epoch(plan, 0), 0), 2000);
}

TEST(Plan, SizesOfImages) {
  const auto sizes_of = [](int64_t num_epochs) {
    const auto plan = make_plan({.batch_size = 8, .epochs = num_epochs, .size_schedule = {{16, 0.4}, {24, 0.7}}}, 16, 1);
    std::vector<int64_t> sizes;
    for (int64_t epoch = 0; epoch < num_epochs; ++epoch) sizes.push_back(plan.image_size_in(epoch));
    return sizes;
  };
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(sizes_of(1), Sizes{0});
  EXPECT_EQ(sizes_of(2), (Sizes{24, 0}));
  EXPECT_EQ(sizes_of(3), (Sizes{16, 24, 0}));
  EXPECT_EQ(sizes_of(10), (Sizes{16, 16, 16, 16, 24, 24, 24, 0, 0, 0}));
}

TEST(Plan, MicroStepsOfAStep) {
  const auto plan = make_plan(options_of(8, std::nullopt, 4, true), 160, 2);  // 10 batches on each rank: groups of 4, 4 and 2
  ASSERT_EQ(plan.steps_per_epoch, 3);
  const auto second_epoch = rest_of_epoch(plan, 1, 3);
  const auto whole = micro_steps_of(plan, second_epoch, 1, 4);
  ASSERT_EQ(whole.size(), 4U);
  EXPECT_EQ(first_batch_of(plan, second_epoch, 4), 4);
  EXPECT_EQ(whole[3].step, 4);
  EXPECT_EQ(whole[3].num_group_samples, 64);
  EXPECT_EQ(whole[3].stream, 7);
  EXPECT_TRUE(whole[0].is_first() && !whole[0].is_last() && whole[3].is_last());
  const auto last = micro_steps_of(plan, second_epoch, 0, 5);
  ASSERT_EQ(last.size(), 2U);
  EXPECT_EQ(last[1].num_group_samples, 32);
  EXPECT_EQ(last[1].stream, 2);
  EXPECT_TRUE(last[1].is_last());
}

TEST(Plan, TheRestOfAnEpochOnAnotherWorldSize) {
  const auto three = make_plan(options_of(std::nullopt, 12, 1, false), 100, 3);
  const auto begun = rest_of_epoch(three, 2, 18);
  EXPECT_EQ(begun.num_steps, 9);  // 102 samples: two of the 100 occur twice
  EXPECT_EQ(end_sample_of(three, begun, 20), 36);
  EXPECT_EQ(end_sample_of(three, begun, 26), 102);

  // On two ranks with the same global batch, the steps continue unchanged, but the epoch ends after 100 samples, without padding.
  const auto two = make_plan(options_of(std::nullopt, 12, 1, false), 100, 2);
  const auto rest = rest_of_epoch(two, 2, 21, 36);
  EXPECT_EQ(rest.first_step_in_epoch, 3);
  EXPECT_EQ(rest.num_steps, 6);
  EXPECT_EQ(rest.end_sample, 100);
  EXPECT_EQ(schedule_step_of(two, rest, 21), 2 * 9 + 3);
  EXPECT_EQ(samples_in_step(two, rest, 26), 4);

  // With another global batch, the rest of the epoch is divided into steps of the new size.
  const auto four = make_plan(options_of(2, std::nullopt, 1, false), 100, 4);
  const auto last = rest_of_epoch(four, 2, 21, 36);
  EXPECT_EQ(last.first_step_in_epoch, 5);
  EXPECT_EQ(last.num_steps, 8);
  EXPECT_EQ(samples_in_step(four, last, 28), 8);
  EXPECT_EQ(schedule_step_of(four, last, 21), 2 * 13 + 5);

  EXPECT_EQ(rest_of_epoch(four, 2, 27, 102).num_steps, 0);
}

TEST(Plan, ANumberOfStepsEndsWithinAnEpoch) {
  auto options = options_of(8, std::nullopt, 2, true);
  options.epochs = std::nullopt;
  options.steps = 8;
  const auto plan = make_plan(options, 80, 2);  // 5 batches on each rank: steps of 2, 2 and 1
  EXPECT_EQ(plan.steps_per_epoch, 3);
  EXPECT_EQ(plan.total_steps, 8);
  const auto whole = rest_of_epoch(plan, 1, 3);
  EXPECT_TRUE(whole.ends_epoch);
  EXPECT_FALSE(whole.is_last());
  EXPECT_EQ(whole.num_epochs, 3);
  const auto cut = rest_of_epoch(plan, 2, 6);
  EXPECT_TRUE(cut.is_last());
  EXPECT_FALSE(cut.ends_epoch);
  EXPECT_EQ(cut.num_steps, 2);
  EXPECT_EQ(cut.num_batches, 4);
  EXPECT_EQ(end_sample_of(plan, cut, 7), 64);
  // All steps are done, but not yet the validation.
  const auto done = rest_of_epoch(plan, 2, 8, 64);
  EXPECT_TRUE(done.is_last());
  EXPECT_FALSE(done.ends_epoch);
  EXPECT_EQ(done.num_steps, 0);
  // On four ranks, which finish the epoch in one step, the number of steps stays the same and the number of epochs grows.
  const auto four = make_plan(options, 80, 4);
  EXPECT_EQ(four.steps_per_epoch, 1);
  const auto rest = rest_of_epoch(four, 1, 4, 32);
  EXPECT_TRUE(rest.ends_epoch);
  EXPECT_EQ(rest.num_steps, 1);
  EXPECT_EQ(rest.num_epochs, 5);
  EXPECT_EQ(schedule_step_of(four, rest, 4), 4);
  // The training ends at the end of an epoch.
  options.steps = 6;
  const auto two_epochs = make_plan(options, 80, 2);
  EXPECT_TRUE(rest_of_epoch(two_epochs, 1, 3).ends_epoch);
  EXPECT_TRUE(rest_of_epoch(two_epochs, 1, 3).is_last());
}

// The sizes of a rank's batches in an epoch.
std::vector<int64_t> batch_sizes(const Plan& plan, int rank) {
  const auto epoch = rest_of_epoch(plan, 0);
  std::vector<int64_t> sizes;
  for (int64_t batch = 0; batch < epoch.num_batches; ++batch) {
    sizes.push_back(samples_before_batch(plan, epoch, rank, batch + 1) - samples_before_batch(plan, epoch, rank, batch));
  }
  return sizes;
}

TEST(Plan, PartsOfABatchDifferByOneWhereTheyCannotBeEqual) {
  auto options = options_of(std::nullopt, 50, 1, true);
  options.shards = data::Shards::kExact;
  const auto three = make_plan(options, 160, 3);
  EXPECT_EQ(three.batch_size, 17);
  EXPECT_EQ(three.global_batch_size, 50);
  // Each rank takes every third sample of an order that all share.
  EXPECT_EQ(batch_sizes(three, 0), (std::vector<int64_t>{17, 17, 16}));
  EXPECT_EQ(batch_sizes(three, 1), (std::vector<int64_t>{17, 16, 17}));
  EXPECT_EQ(batch_sizes(three, 2), (std::vector<int64_t>{16, 17, 17}));
  // A step of 50 in micro-steps of 17, 17 and 16, and a last step of 10.
  options.accumulation_steps = 3;
  options.drop_last = false;
  const auto two = make_plan(options, 60, 2);
  EXPECT_EQ(two.steps_per_epoch, 2);
  EXPECT_EQ(batch_sizes(two, 0), (std::vector<int64_t>{9, 8, 8, 5}));
  EXPECT_EQ(batch_sizes(two, 1), (std::vector<int64_t>{8, 9, 8, 5}));
  EXPECT_EQ(samples_in_step(two, rest_of_epoch(two, 0), 1), 10);
  // drop_last skips the incomplete batch.
  options.drop_last = true;
  EXPECT_EQ(batch_sizes(make_plan(options, 60, 2), 0), (std::vector<int64_t>{9, 8, 8}));
  EXPECT_EQ(batch_sizes(make_plan(options, 67, 2), 0), (std::vector<int64_t>{9, 8, 8, 9}));
}

TEST(Plan, TheDefaultBatch) { EXPECT_EQ(make_plan(options_of(std::nullopt, std::nullopt, 1, true), 1000, 1).batch_size, 128); }

TEST(Plan, TooFewImagesForABatch) {
  EXPECT_EQ(make_plan(options_of(32, std::nullopt, 1, false), 5, 1).batches_per_epoch, 1);
  try {
    make_plan(options_of(32, std::nullopt, 1, true), 5, 1);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "batch_size: 5 training samples are fewer than one batch of 32; lower batch_size, or set dataloader.drop_last: false");
  }
}

}  // namespace
}  // namespace trainer::engine
