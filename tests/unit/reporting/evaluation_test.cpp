#include "reporting/evaluation.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/log.h"
#include "reporting/sinks.h"
#include "tests/testing/metrics.h"
#include "tests/testing/temporary_folder.h"

namespace trainer::reporting::test {
namespace {

using testing::fraction;
using testing::loss;

ValidationEvent two_classes() {
  return {.epoch = 1,
          .step = 20,
          .metrics = {loss(1.5), fraction("top1", 0.625)},
          .num_samples = 8,
          .classes = {.confusion = {3, 1, 2, 2},
                      .calibration = {{.confidence = 0.5, .accuracy = 0.25, .count = 8}},
                      .mistakes = {{5, 0, 1, 0.75}}},
          .ema_metrics = {loss(1.25)}};
}

TEST(Evaluation, HasMetricsAndClasses) {
  const auto expected = nlohmann::json::parse(R"({"split": "train", "epoch": 1, "step": 20, "num_samples": 8,
    "metrics": {"loss": 1.5, "top1": 0.625}, "ema_metrics": {"loss": 1.25},
    "classes": [{"name": "cat", "num_samples": 4, "recall": 0.75, "precision": 0.6, "f1": 0.6666666666666666},
                {"name": "1", "num_samples": 4, "recall": 0.5, "precision": 0.6666666666666666, "f1": 0.5714285714285714}],
    "confusion": [[3, 1], [2, 2]], "calibration": [{"confidence": 0.5, "accuracy": 0.25, "count": 8}],
    "mistakes": [{"index": 5, "label": 0, "predicted": 1, "confidence": 0.75}]})");
  EXPECT_EQ(nlohmann::json::parse(to_text(to_json(Evaluation{.split = "train", .event = two_classes(), .output_names = {"cat"}}))),
            expected);
}

TEST(Evaluation, WithoutClassesHasOnlyMetrics) {
  EXPECT_EQ(to_text(to_json(Evaluation{.event = {.metrics = {loss(0.5)}, .num_samples = 3}})),
            R"({"split":"validation","epoch":0,"step":0,"num_samples":3,"metrics":{"loss":0.5}})");
}

TEST(Evaluation, ScoresOfAClassThatDoesNotOccurAreZero) {
  const auto scores = scores_of_classes({2, 0, 0, 0});
  EXPECT_EQ(scores[0].f1, 1);
  EXPECT_EQ(scores[1].num_samples, 0);
  EXPECT_EQ(scores[1].recall + scores[1].precision + scores[1].f1, 0);
}

TEST(Evaluation, TheFileHasTheLatestValidationWithClasses) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "evaluation.json";
  const auto logger = make_quiet_logger();
  const auto sink = make_evaluation(file, Validations::kAll, {"cat", "dog"}, *logger);
  sink->on_validation({.metrics = {loss(0.5)}});
  EXPECT_FALSE(std::filesystem::exists(file));
  sink->on_validation(two_classes());
  EXPECT_EQ(read_file(file), to_text(to_json(Evaluation{.event = two_classes(), .output_names = {"cat", "dog"}})) + '\n');
  auto later = two_classes();
  later.step = 40;
  sink->on_validation(later);
  EXPECT_EQ(nlohmann::json::parse(read_file(file)).at("step"), 40);
}

TEST(Evaluation, TheFileOfTheBestValidationKeepsIt) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "best_evaluation.json";
  const auto logger = make_quiet_logger();
  const auto sink = make_evaluation(file, Validations::kBest, {}, *logger);
  auto event = two_classes();
  event.is_best = true;
  event.step = 20;
  sink->on_validation(event);
  event.is_best = false;
  event.step = 40;
  sink->on_validation(event);
  EXPECT_EQ(nlohmann::json::parse(read_file(file)).at("step"), 20);
}

TEST(Evaluation, TheFileHasNoConfusionMatrixOfMoreThan200Classes) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "evaluation.json";
  const auto logger = make_quiet_logger();
  const auto sink = make_evaluation(file, Validations::kAll, {}, *logger);
  for (const size_t num_classes : {200, 201}) {
    ValidationEvent event;
    event.classes.confusion.resize(num_classes * num_classes);
    sink->on_validation(event);
    const auto written = nlohmann::json::parse(read_file(file));
    EXPECT_EQ(written.contains("confusion"), num_classes == 200);
    EXPECT_EQ(written.at("classes").size(), num_classes);
  }
}

TEST(Evaluation, AFileThatCannotBeWrittenIsAWarning) {
  const testing::TemporaryFolder folder;
  const auto log = folder.path() / "log";
  const auto logger = make_quiet_logger();
  add_file(*logger, log);
  const auto file = folder.path() / "missing" / "evaluation.json";
  make_evaluation(file, Validations::kAll, {}, *logger)->on_validation(two_classes());
  EXPECT_THAT(read_file(log), ::testing::HasSubstr("cannot write " + file.string()));
  EXPECT_THAT(read_file(log), ::testing::HasSubstr("training continues; `trainer eval` with a checkpoint gives the same results"));
}

}  // namespace
}  // namespace trainer::reporting::test
