// When a run validates, and what follows from the results: early stopping and the learning rate of reduce_on_plateau.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "tests/testing/small_run.h"
#include "tests/testing/temporary_folder.h"
#include "train/engine/validations.h"
#include "trainer/error.h"

namespace trainer::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Overrides = std::vector<std::string>;
using testing::SmallRun;
using testing::train_text;

// An epoch has five steps.
constexpr const char* kFiveSteps =
    "experiment: validation\n"
    "model: {name: demo_linear}\n"
    "dataset: {name: synthetic, shape: [10], num_classes: 10, num_train: 40, num_validation: 12}\n"
    "dataloader: {batch_size: 8}\n"
    "optimizer: {name: sgd, lr: 0.01}\n"
    "runtime: {dtype: float64}\n"
    "training: {epochs: 3}\n"
    "logging: {every_steps: 2}\n";

std::vector<int64_t> validated_steps(const SmallRun& run) {
  std::vector<int64_t> steps;
  for (const auto& event : run.events.validation) steps.push_back(event.step);
  return steps;
}

TEST(Validation, AfterEpochsAndAtTheEnd) {
  EXPECT_THAT(validated_steps(train_text(kFiveSteps)), ElementsAre(5, 10, 15));
  EXPECT_THAT(validated_steps(train_text(kFiveSteps, {"validation.every_epochs=2"})), ElementsAre(10, 15));
}

TEST(Validation, WithinEpochsAfterSoManySteps) {
  const auto both = train_text(kFiveSteps, {"validation.every_steps=3"});
  EXPECT_THAT(validated_steps(both), ElementsAre(3, 5, 6, 9, 10, 12, 15));
  std::vector<bool> within;
  for (const auto& event : both.events.validation) within.push_back(event.is_within_epoch);
  EXPECT_THAT(within, ElementsAre(true, false, true, true, false, true, false));
  for (const auto& epoch : both.events.epochs) EXPECT_EQ(epoch.validation->step, epoch.step);

  const Overrides only_steps = {"validation={every_epochs: null, every_steps: 5}", "training.epochs=null", "training.steps=13"};
  const auto alone = train_text(kFiveSteps, only_steps);
  EXPECT_THAT(validated_steps(alone), ElementsAre(5, 10, 13));
  for (const auto& event : alone.events.validation) EXPECT_FALSE(event.is_within_epoch);
}

TEST(Validation, WithinEpochsChangesNothingOfTheTraining) {
  const auto without = train_text(kFiveSteps);
  const auto with = train_text(kFiveSteps, {"validation.every_steps=3"});
  EXPECT_TRUE(testing::bitwise_equal(testing::state_of(with.parts()), testing::state_of(without.parts())));
  ASSERT_EQ(with.events.train.size(), without.events.train.size());
  for (size_t i = 0; i < with.events.train.size(); ++i) {
    EXPECT_EQ(with.events.train[i].step, without.events.train[i].step);
    EXPECT_EQ(testing::loss_of(with.events.train[i]), testing::loss_of(without.events.train[i]));
  }
}

TEST(Validation, Off) {
  for (const char* length : {"training.epochs=3", "training={steps: 7}"}) {
    const auto run = train_text(kFiveSteps, {length, "validation.every_epochs=null"});
    EXPECT_TRUE(run.done);
    EXPECT_THAT(run.events.validation, IsEmpty());
    EXPECT_FALSE(run.events.end.final_validation || run.events.end.best_validation);
    EXPECT_FALSE(run.parts().data.validation.has_value());
  }
}

// The expected times are computed from the other numbers of the events.
TEST(Validation, BelongsToTheEstimatedTimeToTheEnd) {
  const Overrides within = {"validation.every_steps=3"};
  const Overrides ends_within_an_epoch = {"training.epochs=null", "training.steps=13"};
  const Overrides averaged = {"training.ema={decay: 0.9}", "validation.every_epochs=2"};
  for (const auto& overrides : {Overrides(), within, ends_within_an_epoch, averaged}) {
    const auto run = train_text(kFiveSteps, overrides);
    const auto total_steps = run.events.end.step;
    const auto validated = validated_steps(run);
    double trained = 0;
    int64_t last_step = 0;
    for (const auto& event : run.events.train) {
      trained += static_cast<double>(8 * (event.step - last_step)) / event.images_per_second;
      last_step = event.step;
      int64_t num_left = 0;
      double seconds_of_one = trained / static_cast<double>(8 * event.step) / 3 * 12 * (run.parts().ema ? 2 : 1);
      for (size_t i = 0; i < validated.size(); ++i) {
        if (validated[i] >= event.step) ++num_left;
        if (validated[i] < event.step) seconds_of_one = run.events.validation[i].seconds;
      }
      // With both keys, a validation that both ask for counts twice.
      if (overrides == within && event.step <= 15) ++num_left;
      const auto steps_left = static_cast<double>(total_steps - event.step);
      const double expected = trained / static_cast<double>(event.step) * steps_left + static_cast<double>(num_left) * seconds_of_one;
      EXPECT_NEAR(event.eta_seconds, expected, 1e-9 * expected) << event.step;
    }
  }
}

TEST(Validation, BelongsToTheDurationOfARunAlsoAfterAResume) {
  const testing::TemporaryFolder folder;
  const auto train = [&](int64_t max_steps) { return train_text(kFiveSteps, {}, max_steps, {}, folder.path()); };
  // The sum of the parts is a lower limit.
  const auto parts_of = [](const SmallRun& run) {
    double seconds = 0;
    for (const auto& event : run.events.epochs) seconds += event.seconds;
    for (const auto& event : run.events.validation) seconds += event.seconds;
    return seconds;
  };
  const auto first = train(8);
  ASSERT_FALSE(first.done);
  EXPECT_GE(first.events.end.seconds, parts_of(first));
  const auto second = train(-1);
  ASSERT_TRUE(second.done);
  EXPECT_GE(second.events.end.seconds, parts_of(first) + second.events.validation.front().seconds);
  // The rate is that of the training steps.
  EXPECT_GT(120 / second.events.end.images_per_second, 0);
  EXPECT_LT(120 / second.events.end.images_per_second, second.events.end.seconds);
}

TEST(Validation, ReportsItsProgress) {
  const Overrides once = {"validation.batch_size=5", "validation.every_epochs=3"};
  EXPECT_THAT(train_text(kFiveSteps, once).events.validation_steps, ElementsAre(std::pair(5, 12), std::pair(10, 12), std::pair(12, 12)));
  auto averaged = once;
  averaged.emplace_back("training.ema={decay: 0.9}");
  const auto both = train_text(kFiveSteps, averaged).events.validation_steps;
  EXPECT_EQ(both.front(), std::pair(int64_t{5}, int64_t{24}));
  EXPECT_EQ(both.back(), std::pair(int64_t{24}, int64_t{24}));
  EXPECT_TRUE(std::ranges::is_sorted(both));
}

// Progress does not change the events by steps, of which the files consist.
TEST(Progress, IsReportedAfterTheFirstStepOfAProcess) {
  const auto by_steps = train_text(kFiveSteps, {"logging.every_steps=1"});
  EXPECT_THAT(by_steps.events.progress, IsEmpty());
  const testing::TemporaryFolder folder;
  const auto part = train_text(kFiveSteps, {}, 7, {}, folder.path());
  ASSERT_EQ(part.events.progress.size(), 1U);
  const auto& first = part.events.progress.front();
  const auto& expected = by_steps.events.train.front();
  EXPECT_EQ(std::tuple(first.epoch, first.step, first.step_in_epoch, first.steps_per_epoch, first.num_epochs), std::tuple(0, 1, 1, 5, 3));
  EXPECT_EQ(testing::loss_of(first), testing::loss_of(expected));
  EXPECT_EQ(first.lr, expected.lr);
  EXPECT_GT(first.images_per_second, 0);
  EXPECT_GT(first.eta_seconds, 0);
  const auto rest = train_text(kFiveSteps, {}, -1, {}, folder.path());
  ASSERT_LE(rest.events.progress.size(), 1U);
  std::vector<double> losses;
  for (const auto& run : {&part, &rest}) {
    for (const auto& event : (*run).events.train) losses.push_back(testing::loss_of(event));
  }
  std::vector<double> straight;
  for (const auto& event : train_text(kFiveSteps).events.train) straight.push_back(testing::loss_of(event));
  EXPECT_EQ(losses, straight);
}

TEST(Validation, TellsTheBest) {
  const auto run = train_text(kFiveSteps, {"checkpoint={monitor: validation/loss}"});
  double best = std::numeric_limits<double>::infinity();
  for (const auto& event : run.events.validation) {
    EXPECT_EQ(event.is_best, testing::loss_of(event) < best);
    best = std::min(best, testing::loss_of(event));
  }
  EXPECT_EQ(testing::loss_of(*run.events.end.best_validation), best);
}

// A hook that fills a parameter with NaN for the validations after these steps, and restores it before the next step.
class NaNAt : public TrainingHook {
 public:
  NaNAt(const models::Model& model, std::set<int64_t> steps) : parameter_(model.parameters().front()), steps_(std::move(steps)) {}
  void before_step(int64_t) override {
    const torch::NoGradGuard no_grad;
    if (saved_.defined()) parameter_.copy_(saved_);
    saved_.reset();
  }
  void after_step(int64_t step) override {
    if (!steps_.contains(step + 1)) return;
    const torch::NoGradGuard no_grad;
    saved_ = parameter_.clone();
    parameter_.fill_(NAN);
  }

 private:
  torch::Tensor parameter_, saved_;
  std::set<int64_t> steps_;
};

struct NaNRun {
  testing::Recorder events;
  std::string error;
};

NaNRun train_with_nan_at(const std::set<int64_t>& steps, const Overrides& overrides = {}) {
  auto all = overrides;
  all.emplace_back("checkpoint={monitor: validation/loss}");
  testing::SmallSession session(kFiveSteps, all);
  NaNAt hook(*session.parts().network.model, steps);
  NaNRun run;
  try {
    session.session.train(run.events, [] { return false; }, {&hook});
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kFailure);
    run.error = error.what();
  }
  return run;
}

TEST(Validation, NaNIsNeverTheBest) {
  const auto run = train_with_nan_at({5});
  EXPECT_EQ(run.error, "");
  const auto& events = run.events.validation;
  ASSERT_EQ(events.size(), 3U);
  EXPECT_FALSE(events[0].is_best);
  EXPECT_TRUE(events[1].is_best);
  EXPECT_NE(run.events.end.best_validation->step, 5);
  EXPECT_FALSE(run.events.start.higher_is_better);
  EXPECT_EQ(run.events.start.monitor, "validation/loss");
}

TEST(Validation, OnlyNaNIsAFailure) {
  for (const Overrides& overrides : {Overrides{}, {"training.early_stopping={patience: 3}"}}) {
    const auto run = train_with_nan_at({5, 10, 15}, overrides);
    EXPECT_EQ(run.error,
              "validation/loss was not finite in any validation, so there is no best checkpoint; lower optimizer.lr, set "
              "training.max_grad_norm, or check the validation set");
    EXPECT_EQ(run.events.end.reason, "failed");
    EXPECT_EQ(run.events.end.message, run.error);
    EXPECT_EQ(run.events.end.step, 15);
    EXPECT_FALSE(run.events.end.best_validation);
  }
}

// The early stopping and the number of epochs end the run at the same step; more epochs alone would not continue it.
TEST(EarlyStopping, AtTheLastStepIsTheReasonOfTheEnd) {
  const auto run = train_text(kFiveSteps, {"optimizer.lr=0", "training.early_stopping={patience: 2}"});
  EXPECT_THAT(validated_steps(run), ElementsAre(5, 10, 15));
  EXPECT_EQ(run.events.end.reason, "early");
  EXPECT_THAT(run.events.end.message, ::testing::EndsWith("in 2 consecutive validations (training.early_stopping)"));
}

// With a learning rate of 0, no validation is better than the first one.
TEST(EarlyStopping, EndsTheTrainingAfterPatienceValidations) {
  const auto run = train_text(kFiveSteps, {"optimizer.lr=0", "training.epochs=100", "training.early_stopping={patience: 3}"});
  EXPECT_TRUE(run.done);
  EXPECT_THAT(validated_steps(run), ElementsAre(5, 10, 15, 20));
  EXPECT_EQ(run.events.end.reason, "early");
  const auto top1 = testing::value_of(run.events.validation[0], "top1").value();
  EXPECT_EQ(run.events.end.message,
            fmt::format("validation/top1 did not improve on {:.6g} in 3 consecutive validations (training.early_stopping)", top1));
}

TEST(EarlyStopping, WithinAnEpochReportsAllSteps) {
  const auto run = train_text(
      kFiveSteps, {"optimizer.lr=0", "logging.every_steps=100", "training.early_stopping={patience: 1}", "validation={every_steps: 3}"});
  EXPECT_THAT(validated_steps(run), ElementsAre(3, 5));
  const auto later = train_text(kFiveSteps, {"optimizer.lr=0", "logging.every_steps=100", "training.early_stopping={patience: 2}",
                                             "validation={every_epochs: null, every_steps: 3}"});
  EXPECT_THAT(validated_steps(later), ElementsAre(3, 6, 9));
  EXPECT_TRUE(later.done);
  EXPECT_EQ(later.events.train.back().step, 9);
  EXPECT_EQ(later.events.epochs.back().step, 9);
  EXPECT_EQ(later.events.epochs.back().validation->step, 9);
}

TEST(EarlyStopping, CountsValidationsThatAreNotBetter) {
  const auto count = [](const std::vector<double>& values, bool higher_is_better, double min_delta) {
    EarlyStopping early_stopping;
    std::vector<int64_t> counts;
    for (const double value : values) {
      early_stopping.observe(value, higher_is_better, min_delta);
      counts.push_back(early_stopping.num_not_better);
    }
    return counts;
  };
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(count({0.5, 0.5, 0.6, 0.55, 0.61}, true, 0), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(count({0.5, 0.55, 0.58, 0.65}, true, 0.1), ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(count({2, 1, 1.5, 0.5}, false, 0), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(count({kNaN, 2, kNaN, 1}, false, 0), ElementsAre(1, 0, 1, 0));
}

TEST(ReduceOnPlateau, ReducesTheLearningRateOfTheNextSteps) {
  const auto run =
      train_text(kFiveSteps, {"checkpoint={monitor: validation/loss}", "logging.every_steps=5",
                              "lr_scheduler={name: reduce_on_plateau, factor: 0.5, patience: 0, threshold: 100, threshold_mode: abs}"});
  std::vector<double> lrs, of_epochs;
  for (const auto& event : run.events.train) lrs.push_back(event.lr);
  for (const auto& event : run.events.epochs) of_epochs.push_back(event.lr);
  // The first validation is always the best so far, and no other one differs from it by the threshold of 100.
  EXPECT_THAT(lrs, ElementsAre(0.01, 0.01, 0.005));
  EXPECT_EQ(of_epochs, lrs);
}

TEST(OverfitBatches, TrainsAndValidatesOnTheSameImages) {
  const Overrides overrides = {"training={epochs: 60, overfit_batches: 2}", "optimizer={name: sgd, lr: 1}", "seed=7"};
  const auto run = train_text(kFiveSteps, overrides);
  EXPECT_EQ(run.events.start.steps_per_epoch, 2);
  EXPECT_EQ(run.parts().data.train.samples.size(), 16);
  const auto& last = *run.events.end.final_validation;
  EXPECT_EQ(last.num_samples, 16);
  EXPECT_EQ(testing::value_of(last, "top1"), 1);
  EXPECT_LT(testing::loss_of(last), 0.1);
  const auto chosen = [&](const std::string& seed) {
    testing::SmallSession session(kFiveSteps, {overrides[0], seed});
    const auto& trained = session.parts().data.train.samples.dataset();
    const auto& validated = session.parts().data.validation->samples.dataset();
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < trained.size(); ++i) {
      indices.push_back(trained.origin(i).index);
      EXPECT_EQ(validated.origin(i).index, indices.back());
    }
    return indices;
  };
  EXPECT_EQ(chosen("seed=7"), chosen("seed=7"));
  EXPECT_NE(chosen("seed=7"), chosen("seed=8"));
}

TEST(OverfitBatches, OfAStepOfAllRanks) {
  testing::SmallSession session(kFiveSteps, {"training.overfit_batches=1", "training.accumulation_steps=2"});
  EXPECT_EQ(session.parts().data.train.samples.size(), 16);
  testing::SmallSession all(kFiveSteps, {"training.overfit_batches=100"});
  EXPECT_EQ(all.parts().data.train.samples.size(), 40);
}

}  // namespace
}  // namespace trainer::engine
