// When a run validates, and what follows from the results: early stopping and the learning rate of reduce_on_plateau.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "tests/testing/small_run.h"
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
    EXPECT_FALSE(run.parts().validation.has_value());
  }
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
  NaNAt hook(*session.parts().model, steps);
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
  EXPECT_EQ(run.parts().train.samples.size(), 16);
  const auto& last = *run.events.end.final_validation;
  EXPECT_EQ(last.num_samples, 16);
  EXPECT_EQ(testing::value_of(last, "top1"), 1);
  EXPECT_LT(testing::loss_of(last), 0.1);
  const auto chosen = [&](const std::string& seed) {
    testing::SmallSession session(kFiveSteps, {overrides[0], seed});
    const auto& trained = session.parts().train.samples.dataset();
    const auto& validated = session.parts().validation->samples.dataset();
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < trained.size(); ++i) {
      indices.push_back(trained.index_in_files(i));
      EXPECT_EQ(validated.index_in_files(i), indices.back());
    }
    return indices;
  };
  EXPECT_EQ(chosen("seed=7"), chosen("seed=7"));
  EXPECT_NE(chosen("seed=7"), chosen("seed=8"));
}

TEST(OverfitBatches, OfAStepOfAllRanks) {
  testing::SmallSession session(kFiveSteps, {"training.overfit_batches=1", "training.accumulation_steps=2"});
  EXPECT_EQ(session.parts().train.samples.size(), 16);
  testing::SmallSession all(kFiveSteps, {"training.overfit_batches=100"});
  EXPECT_EQ(all.parts().train.samples.size(), 40);
}

}  // namespace
}  // namespace trainer::engine
