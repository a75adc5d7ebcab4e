#include "train/optim/lr_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "config/sections.h"
#include "tests/unit/optim/golden.h"
#include "trainer/error.h"

namespace trainer::optim::test {
namespace {

// The numbers of steps in tests/golden/make_lr_schedules.py.
constexpr int64_t kSteps = 24;
constexpr int64_t kStepsPerEpoch = 4;

LrSchedule schedule_from(const std::string& yaml, int64_t total_steps = kSteps, int64_t steps_per_epoch = kStepsPerEpoch) {
  config::LrSchedulerSection section;
  config::Problems problems;
  config::read_section(
      config::parse_yaml(yaml, "test"), [&](KeyTable& keys) { section.describe(keys, lr_scheduler_registry()); }, "lr_scheduler", problems);
  problems.throw_if_any();
  return make_lr_schedule(section.component, section.warmup, total_steps, steps_per_epoch);
}

std::string refusal_of(const std::string& yaml) {
  try {
    schedule_from(yaml);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

struct GoldenSchedule {
  std::string name;
  std::string yaml;
};

class LrScheduleLikePython : public ::testing::TestWithParam<GoldenSchedule> {};

TEST_P(LrScheduleLikePython, AtEveryStep) {
  const auto golden = read_golden("lr_schedules.txt");
  const auto& expected = golden.at(GetParam().name).front();
  ASSERT_GE(expected.size(), size_t{kSteps});
  const auto schedule = schedule_from(GetParam().yaml);
  for (size_t step = 0; step < expected.size(); ++step) {
    EXPECT_NEAR(schedule(static_cast<int64_t>(step)), expected[step], 1e-12) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Golden, LrScheduleLikePython,
    ::testing::Values(GoldenSchedule{"constant", "{name: constant}"}, GoldenSchedule{"step", "{name: step, step_epochs: 2, gamma: 0.2}"},
                      GoldenSchedule{"multistep", "{name: multistep, milestones: [1, 2.5, 5], gamma: 0.3}"},
                      GoldenSchedule{"cosine", "{name: cosine}"}, GoldenSchedule{"cosine_final", "{name: cosine, final_factor: 0.05}"},
                      GoldenSchedule{"linear", "{name: linear, start_factor: 0.8, end_factor: 0.1}"},
                      GoldenSchedule{"polynomial", "{name: polynomial, power: 2.5}"}, GoldenSchedule{"onecycle", "{name: onecycle}"},
                      GoldenSchedule{"onecycle_keys", "{name: onecycle, pct_start: 0.45, div_factor: 10, final_div_factor: 50}"},
                      GoldenSchedule{"onecycle_without_rise", "{name: onecycle, pct_start: 0}"},
                      GoldenSchedule{"warmup_constant", "{name: constant, warmup_steps: 6, warmup_start_factor: 0.25}"},
                      GoldenSchedule{"warmup_cosine", "{name: cosine, warmup_epochs: 1.5, warmup_start_factor: 0.1}"},
                      GoldenSchedule{"warmup_polynomial", "{name: polynomial, power: 2, warmup_steps: 6, warmup_start_factor: 0.1}"},
                      GoldenSchedule{"warmup_multistep",
                                     "{name: multistep, milestones: [2, 4], warmup_steps: 6, warmup_start_factor: 0.5}"},
                      GoldenSchedule{"warmup_step", "{name: step, step_epochs: 3, warmup_steps: 6, warmup_start_factor: 0.5}"}),
    [](const auto& test) { return test.param.name; });

struct GoldenPlateau {
  std::string name;
  bool higher_is_better;
  std::string keys;
};

TEST(ReduceOnPlateau, LikePythonAfterEachObservation) {
  const auto golden = read_golden("lr_schedules.txt");
  // The observed values are not in the golden file, because a stream cannot read NaN.
  const std::vector<double> observed = {2.0, 1.5, 1.5, 1.499, 1.6, 1.4, std::nan(""), 1.41, 1.395, 1.39,
                                        1.5, 1.6, 1.2, 1.3,   1.3, 1.3, 1.3,          1.3,  1.3,   1.3};
  for (const auto& [name, higher_is_better, keys] :
       {GoldenPlateau{"reduce_on_plateau", false, "factor: 0.1, patience: 2"},
        GoldenPlateau{"reduce_on_plateau_max", true, "factor: 0.5, patience: 1, threshold: 0.01"},
        GoldenPlateau{"reduce_on_plateau_absolute", false, "factor: 0.5, patience: 0, threshold: 0.05, threshold_mode: abs"},
        GoldenPlateau{"reduce_on_plateau_cooldown", false, "factor: 0.5, patience: 0, cooldown: 2, min_factor: 0.2"}}) {
    SCOPED_TRACE(name);
    auto schedule = schedule_from("{name: reduce_on_plateau, " + keys + "}");
    const auto& expected = golden.at(name).front();
    ASSERT_EQ(expected.size(), observed.size());
    EXPECT_LT(expected.back(), 1);
    EXPECT_EQ(schedule(0), 1);
    for (size_t i = 0; i < observed.size(); ++i) {
      schedule.plateau->observe(observed[i], higher_is_better);
      EXPECT_NEAR(schedule(0), expected[i], 1e-12) << "observation " << i;
    }
    EXPECT_EQ(schedule.plateau->num_observed(), static_cast<int64_t>(observed.size()));
  }
}

TEST(ReduceOnPlateau, ItsWarmupScalesTheReducedRate) {
  auto schedule = schedule_from("{name: reduce_on_plateau, patience: 0, factor: 0.5, warmup_steps: 4, warmup_start_factor: 0.5}");
  schedule.plateau->observe(1, false);
  schedule.plateau->observe(1, false);
  EXPECT_EQ(schedule(0), 0.25);
  EXPECT_EQ(schedule(4), 0.5);
}

TEST(LrSchedule, EveryKindIsTested) {
  const auto golden = read_golden("lr_schedules.txt");
  for (const auto& name : lr_scheduler_registry().names()) EXPECT_TRUE(golden.contains(name)) << name;
}

TEST(LrSchedule, WarmupStartsCloseToZeroByDefault) {
  const auto schedule = schedule_from("{warmup_steps: 4}");
  EXPECT_DOUBLE_EQ(schedule(0), 0.01);
  EXPECT_DOUBLE_EQ(schedule(1), 0.01 + 0.99 / 4);
  EXPECT_EQ(schedule(4), 1);
}

TEST(LrSchedule, WarmupEpochsBelowOneStepAreOneStep) {
  const auto schedule = schedule_from("{warmup_epochs: 0.01, warmup_start_factor: 0.5}");
  EXPECT_EQ(schedule(0), 0.5);
  EXPECT_EQ(schedule(1), 1);
}

TEST(LrSchedule, PolynomialEndsAtItsFinalFactor) {
  const auto schedule = schedule_from("{name: polynomial, power: 2, final_factor: 0.2}");
  EXPECT_EQ(schedule(0), 1);
  EXPECT_DOUBLE_EQ(schedule(kSteps / 2), 0.2 + 0.8 / 4);
  EXPECT_DOUBLE_EQ(schedule(kSteps), 0.2);
}

TEST(LrSchedule, KeepsTheEndValueAfterTheTraining) {
  for (const std::string yaml : {"{name: cosine, final_factor: 0.1}", "{name: polynomial}", "{name: linear, end_factor: 0.3}",
                                 "{name: onecycle}", "{name: step, step_epochs: 1}"}) {
    const auto schedule = schedule_from(yaml);
    EXPECT_EQ(schedule(kSteps + 5), schedule(kSteps)) << yaml;
  }
  const auto onecycle = schedule_from("{name: onecycle}");
  EXPECT_EQ(onecycle(kSteps), onecycle(kSteps - 1));
}

// PyTorch divides by zero here.
TEST(LrSchedule, OneCycleWithItsPeakAtTheFirstStep) {
  const auto schedule = schedule_from("{name: onecycle, pct_start: 0.1}", /*total_steps=*/10);
  EXPECT_EQ(schedule(0), 1);
  EXPECT_LT(schedule(1), 1);
  EXPECT_TRUE(std::isfinite(schedule_from("{name: onecycle}", /*total_steps=*/1)(0)));
}

TEST(LrSchedule, AMilestoneAtAFractionOfAnEpochFallsOnItsStep) {
  const auto schedule = schedule_from("{name: multistep, milestones: [1.1], gamma: 0.5}", /*total_steps=*/30, /*steps_per_epoch=*/10);
  EXPECT_EQ(schedule(10), 1);
  EXPECT_EQ(schedule(11), 0.5);
}

TEST(LrSchedule, RemainsValidAfterItsOptionsAreDestroyed) {
  const auto schedule = [] { return schedule_from("{name: cosine, final_factor: 0.5}"); }();
  EXPECT_DOUBLE_EQ(schedule(kSteps), 0.5);
}

TEST(MakeLrFactor, IsTheSchedule) {
  const auto cosine = lr_scheduler_registry().configure("cosine");
  const auto factor = make_lr_factor(cosine, kSteps, kStepsPerEpoch, {.steps = 3});
  const auto schedule = schedule_from("{name: cosine, warmup_steps: 3}");
  for (int64_t step = 0; step <= kSteps; ++step) EXPECT_EQ(factor(step), schedule(step));
  const auto refused = [](const char* name, const WarmupOptions& warmup) {
    return [=] { make_lr_factor(lr_scheduler_registry().configure(name), kSteps, kStepsPerEpoch, warmup); };
  };
  EXPECT_THAT(refused("reduce_on_plateau", {}),
              ::testing::ThrowsMessage<UsageError>(::testing::HasSubstr("the schedule reduce_on_plateau depends on validations")));
  EXPECT_THAT(refused("onecycle", {.steps = 3}),
              ::testing::ThrowsMessage<OptionError>("warmup: onecycle has its own warm-up; remove this one"));
  EXPECT_THROW(refused("cosine", {.steps = kSteps})(), OptionError);
  EXPECT_THROW(make_lr_factor(cosine, 0, 1), c10::Error);
}

TEST(LrSchedule, AWarmupIsShorterThanTheTraining) {
  EXPECT_EQ(refusal_of("{warmup_steps: 24}"),
            "warmup: the warm-up of 24 steps must be shorter than the training run of 24 steps; shorten the warm-up or train longer");
  EXPECT_EQ(refusal_of("{warmup_steps: 23}"), "accepted");
}

TEST(LrSchedule, EpochsBetweenDropsAndMilestonesAreRequired) {
  EXPECT_THAT(refusal_of("{name: step}"), ::testing::HasSubstr("step_epochs"));
  EXPECT_THAT(refusal_of("{name: multistep}"), ::testing::HasSubstr("milestones"));
}

}  // namespace
}  // namespace trainer::optim::test
