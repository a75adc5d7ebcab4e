#include "run/evaluation/calibration.h"

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <limits>

#include "inference/description.h"
#include "trainer/error.h"

namespace trainer::evaluation {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Calibration, ATemperatureThatDoesNotExistIsRefused) {
  const auto labels = torch::arange(3);
  const auto always_right = torch::eye(3, torch::kFloat64);
  EXPECT_THAT([&] { fit_temperature({always_right, labels}); }, ThrowsMessage<UsageError>(HasSubstr("the network is right on all")));
  EXPECT_THAT(
      [&] {
        fit_temperature({-always_right, labels});
      },
      ThrowsMessage<UsageError>(HasSubstr("the network is no better than chance")));
}

TEST(Calibration, TheTemperatureOfTwoClasses) {
  // Three of four predictions are correct, all with the same margin, so this margin must mean a probability of 3/4.
  const auto logits = torch::tensor({{5.0, 0.0}, {5.0, 0.0}, {5.0, 0.0}, {5.0, 0.0}}, torch::kFloat64);
  const auto labels = torch::tensor({0, 0, 0, 1}, torch::kLong);
  EXPECT_NEAR(fit_temperature({logits, labels}), 5 / std::log(3.0), 1e-12);
}

TEST(Calibration, AThresholdLiesBetweenTwoSamples) {
  const auto of_first = torch::tensor({0.9, 0.2, 0.6, 0.1, 0.5}, torch::kFloat64);
  const auto probabilities = torch::stack({of_first, 1 - of_first}, 1);
  const auto labels = torch::tensor({0, 0, 0, 1, 1}, torch::kLong);
  EXPECT_DOUBLE_EQ(fit_threshold(probabilities, labels, 0, 0).probability, (0.2 + 0.1) / 2);
  EXPECT_DOUBLE_EQ(fit_threshold(probabilities, labels, 0, 0.34).probability, (0.6 + 0.5) / 2);
  EXPECT_DOUBLE_EQ(fit_threshold(probabilities, torch::zeros(5, torch::kLong), 0, 0).probability, 0.05);
  EXPECT_THAT([&] { fit_threshold(probabilities, torch::zeros(5, torch::kLong), 1, 0); },
              ThrowsMessage<UsageError>(HasSubstr("no images of this class")));
}

TEST(Calibration, DecisionsAndTheirIntervals) {
  const auto measure = [](const inference::OperatingPoint& point, const torch::Tensor& probabilities, const torch::Tensor& labels) {
    DecisionMeter meter(point);
    // The samples are added in two batches.
    meter.add(probabilities.slice(0, 0, 2), labels.slice(0, 0, 2));
    meter.add(probabilities.slice(0, 2), labels.slice(0, 2));
    return meter.result();
  };
  const inference::OperatingPoint point{.temperature = 1, .reject_below = 0.7, .threshold = inference::OperatingPoint::Threshold{0, 0.3}};
  const auto of_first = torch::tensor({0.9, 0.35, 0.2, 0.29, 0.1}, torch::kFloat64);
  const auto probabilities = torch::stack({of_first, 1 - of_first}, 1);
  const auto labels = torch::tensor({0, 1, 1, 0, 1}, torch::kLong);
  const auto result = measure(point, probabilities, labels);
  ASSERT_TRUE(result.misses && result.false_alarms && result.rejected && result.accuracy);
  EXPECT_DOUBLE_EQ(result.misses->value, 0.5);
  EXPECT_DOUBLE_EQ(result.false_alarms->value, 1.0 / 3);
  EXPECT_DOUBLE_EQ(result.rejected->value, 0);
  EXPECT_DOUBLE_EQ(result.accuracy->value, 0.6);
  // Wilson's interval for 1 of 2, and for 0 of 5.
  EXPECT_NEAR(result.misses->low, 0.0945, 1e-4);
  EXPECT_NEAR(result.misses->high, 0.9055, 1e-4);
  EXPECT_NEAR(result.rejected->high, 0.4345, 1e-4);
  EXPECT_LT(result.accuracy->low, 0.6);
  EXPECT_GT(result.accuracy->high, 0.6);
  // Here, predictions with a probability below 0.75 are rejected, and only the others count for the accuracy.
  const auto strict = measure({.temperature = 1, .reject_below = 0.75}, probabilities, labels);
  EXPECT_DOUBLE_EQ(strict.rejected->value, 0.4);
  EXPECT_DOUBLE_EQ(strict.accuracy->value, 1);
  // Without samples, a fraction has no value.
  const auto of_second = measure(point, probabilities, torch::ones(5, torch::kLong));
  EXPECT_FALSE(of_second.misses.has_value());
  EXPECT_FALSE(measure({.temperature = 1, .reject_below = 1}, probabilities, labels).accuracy.has_value());
}

TEST(Calibration, PrecisionAndRecall) {
  const auto of_first = torch::tensor({0.9, 0.8, 0.8, 0.5, 0.1, 0.7}, torch::kFloat64);
  const auto measured =
      measure_precision_recall(torch::stack({of_first, 1 - of_first}, 1), torch::tensor({0, 0, 1, 1, 1, 0}, torch::kLong), /*label=*/0);
  EXPECT_EQ(measured.num_samples, 3);
  ASSERT_EQ(measured.points.size(), 3);
  // The second threshold accepts both samples of probability 0.8.
  EXPECT_DOUBLE_EQ(measured.points[1].threshold, 0.8);
  EXPECT_DOUBLE_EQ(measured.points[1].recall, 2.0 / 3);
  EXPECT_DOUBLE_EQ(measured.points[1].precision, 2.0 / 3);
  EXPECT_DOUBLE_EQ(measured.average_precision, (1 + 2.0 / 3 + 3.0 / 4) / 3);
  const auto many = torch::rand({1000, 2}, torch::kFloat64);
  const auto thinned = measure_precision_recall(many, torch::zeros(1000, torch::kLong), 0);
  EXPECT_EQ(thinned.points.size(), 50);
  EXPECT_DOUBLE_EQ(thinned.points.back().recall, 1);
  EXPECT_TRUE(measure_precision_recall(many, torch::zeros(1000, torch::kLong), 1).points.empty());
}

TEST(Calibration, ProbabilitiesThatAreNotFiniteAreRejected) {
  const std::array<double, 2> values = {std::nan(""), std::nan("")};
  EXPECT_TRUE(inference::decide({}, values).is_rejected);
  // A rejected image of the threshold's class counts as missed; a rejected image of another class is not a false alarm.
  DecisionMeter meter({.threshold = inference::OperatingPoint::Threshold{0, 0.3}});
  meter.add(torch::full({2, 2}, std::nan(""), torch::kFloat64), torch::tensor({0, 1}, torch::kLong));
  const auto result = meter.result();
  ASSERT_TRUE(result.misses && result.false_alarms && result.rejected);
  EXPECT_EQ(result.misses->value, 1);
  EXPECT_EQ(result.false_alarms->value, 0);
  EXPECT_EQ(result.rejected->value, 1);
}

TEST(Calibration, StoredValuesAreChecked) {
  const auto read = [](double temperature, int64_t label) {
    state::Dict file;
    const inference::OperatingPoint::Threshold threshold{label, 0.5};
    file.add("operating_point", inference::tree_of({.temperature = temperature, .reject_below = 0, .threshold = threshold}));
    return inference::read_operating_point(file, "a.pt", /*averaged=*/false, {.shape = {3, 8, 8}, .num_classes = 3});
  };
  EXPECT_EQ(read(2, 1).threshold->label, 1);
  EXPECT_THAT([&] { read(0, 1); }, ThrowsMessage<CheckpointError>(HasSubstr("calibrate the checkpoint again")));
  for (const double temperature : {-1.0, 1e-320, 1e300, std::nan("")}) {
    EXPECT_THAT([&] { read(temperature, 1); }, ThrowsMessage<CheckpointError>(HasSubstr("calibrate the checkpoint again")));
  }
  EXPECT_THAT([&] { read(2, 3); }, ThrowsMessage<CheckpointError>(HasSubstr("calibrate the checkpoint again")));
}

TEST(Description, ShapesAndNamesAreChecked) {
  const auto with = [](const char* key, state::List values) {
    state::Dict file;
    file.add(key, std::move(values));
    return state::Tree(std::move(file));
  };
  const auto read = [&](const state::List& shape) { return inference::read_sample_shape(with("sample_shape", shape), "a.pt"); };
  EXPECT_EQ(read({3, data::kAnySize, data::kAnySize}), (std::vector<int64_t>{3, data::kAnySize, data::kAnySize}));
  EXPECT_EQ(read({10}), std::vector<int64_t>{10});
  EXPECT_THAT(
      [&] {
        read({3, 0, 8});
      },
      ThrowsMessage<CheckpointError>("a.pt: sample_shape: [3, 0, ...] is not the shape of a sample; give an intact checkpoint"));
  for (const state::List& shape : {state::List{-1, 8, 8}, state::List{3, -2, 8}, state::List{3, int64_t{1} << 62, 4}}) {
    EXPECT_THAT([&] { read(shape); }, ThrowsMessage<CheckpointError>(HasSubstr("is not the shape of a sample")));
  }
  EXPECT_THAT(
      [&] {
        inference::read_names(with("class_names", {"cat", std::string("d\0g", 3)}), "a.pt", "class_names");
      },
      ThrowsMessage<CheckpointError>("a.pt: class_names[1]: contains a null byte; give an intact checkpoint"));
}

TEST(FormatVersion, AnotherOneIsRefused) {
  const auto check = [](int64_t version) {
    state::Dict file;
    file.add("format_version", version);
    file.add("trainer_version", "9.0.0");
    const state::Tree tree(std::move(file));
    inference::check_format_version(state::View(tree, "a.pt"));
  };
  check(1);
  EXPECT_THAT([&] { check(2); }, ThrowsMessage<CheckpointError>(
                                     "a.pt: format_version: is 2, but this program reads only 1; use the version of the program that "
                                     "wrote the checkpoint, 9.0.0"));
}

TEST(OperatingPoint, StoredNumbersAreChecked) {
  const auto refused = [](const state::Dict& file, const data::DatasetInfo& samples) {
    try {
      inference::read_operating_point(file, "a.pt", /*averaged=*/false, samples);
    } catch (const CheckpointError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  state::Dict validation;
  validation.add("thresholds", state::List{0.5, std::nan("")});
  state::Dict labels;
  labels.add("last_validation", std::move(validation));
  EXPECT_EQ(refused(labels, {.shape = {3, 8, 8}, .num_classes = 2, .is_multi_label = true}),
            "a.pt: last_validation.thresholds[1]: is nan, but must be a finite number; give an intact checkpoint");
  const auto numbers = [](double mean, double deviation) {
    state::Dict file;
    file.add("target_summary", inference::tree_of(data::TargetSummary{.num_samples = 1, .mean = {mean}, .deviation = {deviation}}));
    return file;
  };
  const data::DatasetInfo regression{.shape = {3, 8, 8}, .num_targets = 1};
  EXPECT_EQ(refused(numbers(1, 2), regression), "");
  EXPECT_EQ(refused(numbers(std::numeric_limits<double>::infinity(), 2), regression),
            "a.pt: target_summary.mean[0]: is inf, but must be a finite number; give an intact checkpoint");
  EXPECT_EQ(refused(numbers(1, 0), regression),
            "a.pt: target_summary.deviation[0]: is 0, but must be a finite number greater than 0; give an intact checkpoint");
}

}  // namespace
}  // namespace trainer::evaluation
