#include "train/engine/histograms.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "tests/testing/small_run.h"
#include "tests/testing/temporary_folder.h"

namespace trainer::engine {
namespace {

using ::testing::ElementsAre;

// Four steps in each of four epochs.
const std::string kHistogramText =
    "experiment: histograms\nmodel: {name: demo_linear}\nloss: {name: mse}\n"
    "dataset: {name: synthetic, shape: [10], num_classes: 0, num_targets: 10, num_train: 32, num_validation: 8}\n"
    "dataloader: {global_batch_size: 8}\noptimizer: {name: sgd, lr: 0.01, momentum: 0.9}\nruntime: {device: cpu}\n"
    "training: {epochs: 4}\nlogging: {every_steps: 2}\n";

TEST(MakeHistogram, CountsInIntervalsOfEqualWidth) {
  // From -1 to 63, the intervals have the width 1 and contain their lower limit; the last interval also contains the greatest value.
  const auto histogram = make_histogram("w", torch::tensor({-1.0, -0.5, 0.0, 62.0, 62.5, 63.0}).to(torch::kFloat32)).value();
  EXPECT_EQ(histogram.name, "w");
  EXPECT_EQ(histogram.min, -1);
  EXPECT_EQ(histogram.max, 63);
  EXPECT_EQ(histogram.sum, 186);
  EXPECT_EQ(histogram.sum_squares, 1 + 0.25 + 62 * 62 + 62.5 * 62.5 + 63 * 63);
  ASSERT_EQ(histogram.counts.size(), 64U);
  ASSERT_EQ(histogram.limits.size(), 64U);
  EXPECT_EQ(histogram.limits.front(), 0);
  EXPECT_EQ(histogram.limits[1], 1);
  EXPECT_EQ(histogram.limits.back(), 63);
  EXPECT_EQ(histogram.counts[0], 2);
  EXPECT_EQ(histogram.counts[1], 1);
  EXPECT_EQ(histogram.counts[63], 3);
  EXPECT_EQ(std::accumulate(histogram.counts.begin(), histogram.counts.end(), int64_t{0}), 6);
}

TEST(MakeHistogram, EqualValuesAreOneInterval) {
  const auto histogram = make_histogram("b", torch::full({2, 3}, 0.5)).value();
  EXPECT_THAT(histogram.limits, ElementsAre(0.5));
  EXPECT_THAT(histogram.counts, ElementsAre(6));
}

TEST(MakeHistogram, LeavesOutWhatIsNotFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto histogram = make_histogram("w", torch::tensor({kInfinity, -kInfinity, std::nan(""), 1.0, 2.0})).value();
  EXPECT_EQ(histogram.min, 1);
  EXPECT_EQ(histogram.max, 2);
  EXPECT_EQ(std::accumulate(histogram.counts.begin(), histogram.counts.end(), int64_t{0}), 2);
  EXPECT_FALSE(make_histogram("w", torch::tensor({kInfinity})));
  EXPECT_FALSE(make_histogram("w", torch::zeros({0})));
}

// The histogram events of a run with these keys.
std::vector<reporting::HistogramsEvent> histograms_of(const std::vector<std::string>& overrides) {
  return testing::train_text(kHistogramText, overrides).events.histograms;
}

TEST(Histograms, AreReportedAfterTheLastStepOfEpochs) {
  const auto events = histograms_of({"logging.histograms_every_epochs=2"});
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].epoch, 1);
  EXPECT_EQ(events[0].step, 8);
  EXPECT_EQ(events[1].epoch, 3);
  EXPECT_EQ(events[1].step, 16);
  for (const auto& event : events) {
    ASSERT_EQ(event.parameters.size(), 2U);
    ASSERT_EQ(event.gradients.size(), 2U);
    EXPECT_EQ(event.parameters[0].name, event.gradients[0].name);
  }
  EXPECT_TRUE(histograms_of({}).empty());
}

// With SGD without momentum, the gradient of the last step can be computed from the parameters before and after it.
TEST(Histograms, HaveTheGradientsOfTheLastStep) {
  const std::vector<std::string> common = {"optimizer={name: sgd, lr: 0.5}", "training={steps: 8}", "lr_scheduler={name: constant}",
                                           "validation.every_epochs=10"};
  auto with = common;
  with.emplace_back("logging.histograms_every_epochs=1");
  const auto run = testing::train_text(kHistogramText, with);
  // One of the 8 calls of should_stop is at the end of the first epoch.
  const auto before = testing::train_text(kHistogramText, common, /*max_steps=*/8);
  EXPECT_EQ(before.events.end.step, 7);
  const auto weights = run.parts().network.model->parameters()[0].detach();
  const auto gradient = (before.parts().network.model->parameters()[0].detach() - weights) / 0.5;
  const auto& reported = run.events.histograms.back();
  EXPECT_NEAR(reported.parameters[0].sum, weights.to(torch::kFloat64).sum().item<double>(), 1e-12);
  // The difference of two float32 weights has an error of about 1e-8.
  EXPECT_NEAR(reported.gradients[0].min, gradient.min().item<double>(), 1e-6);
  EXPECT_NEAR(reported.gradients[0].max, gradient.max().item<double>(), 1e-6);
}

// The float16 loss is scaled by 1024 here.
TEST(Histograms, GradientsAreUnscaled) {
  const std::vector<std::string> common = {"logging.histograms_every_epochs=1", "training.epochs=1"};
  auto scaled = common;
  scaled.emplace_back("amp={enabled: true, dtype: float16, init_scale: 1024.0}");
  auto plain = common;
  plain.emplace_back("amp={enabled: false}");
  const auto expected = histograms_of(plain).at(0).gradients.at(0);
  const auto gradient = histograms_of(scaled).at(0).gradients.at(0);
  // float16 has 11 significant bits.
  EXPECT_NEAR(gradient.max, expected.max, 0.01 * expected.max);
  EXPECT_NEAR(gradient.min, expected.min, -0.01 * expected.min);
}

TEST(Histograms, ChangeNothing) {
  const auto plain = testing::train_text(kHistogramText);
  const auto reported = testing::train_text(kHistogramText, {"logging.histograms_every_epochs=1"});
  EXPECT_TRUE(testing::bitwise_equal(testing::state_of(plain.parts()), testing::state_of(reported.parts())));
}

// The run is stopped between the first and the second epoch.
TEST(Histograms, OfAResumedRunAreThoseOfAStraightOne) {
  const std::vector<std::string> overrides = {"logging.histograms_every_epochs=1"};
  const auto straight = histograms_of(overrides);
  const testing::TemporaryFolder folder;
  auto events = testing::train_text(kHistogramText, overrides, 6, {}, folder.path()).events.histograms;
  EXPECT_EQ(events.size(), 1U);
  for (const auto& event : testing::train_text(kHistogramText, overrides, -1, {}, folder.path()).events.histograms) events.push_back(event);
  ASSERT_EQ(events.size(), straight.size());
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].step, straight[i].step);
    for (size_t p = 0; p < 2; ++p) {
      EXPECT_EQ(events[i].parameters[p].counts, straight[i].parameters[p].counts);
      EXPECT_EQ(events[i].gradients[p].limits, straight[i].gradients[p].limits);
      EXPECT_EQ(events[i].gradients[p].counts, straight[i].gradients[p].counts);
    }
  }
}

}  // namespace
}  // namespace trainer::engine
