#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "report/page.h"
#include "report/report_data.h"

namespace trainer::report {
namespace {

using history::Json;
using history::RunRecord;
using history::Series;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Series ramp(size_t size) {
  Series series;
  for (size_t i = 0; i < size; ++i) {
    series.steps.push_back(static_cast<int64_t>(i));
    series.values.push_back(static_cast<double>(i % 7));
  }
  return series;
}

TEST(Shortened, KeepsTheExtremesAndBothEnds) {
  auto series = ramp(10000);
  series.values[5003] = 100;
  series.values[7001] = -100;
  series.values[8000] = std::numeric_limits<double>::quiet_NaN();
  const auto few = shortened(series, 100);
  EXPECT_LE(few.values.size(), 102U);
  EXPECT_GE(few.values.size(), 90U);
  EXPECT_EQ(few.steps.front(), 0);
  EXPECT_EQ(few.steps.back(), 9999);
  EXPECT_TRUE(std::ranges::is_sorted(few.steps));
  EXPECT_EQ(std::ranges::max(few.values), 100);
  EXPECT_EQ(std::ranges::min(few.values), -100);
  EXPECT_TRUE(std::ranges::none_of(few.values, [](double value) { return std::isnan(value); }));
  EXPECT_EQ(shortened(ramp(100), 100).steps, ramp(100).steps);
}

TEST(Shortened, ASeriesWithoutNumbersStays) {
  Series series = ramp(50);
  for (auto& value : series.values) value = std::numeric_limits<double>::quiet_NaN();
  EXPECT_GE(shortened(series, 10).values.size(), 5U);
}

RunRecord run_named(const std::string& name) {
  RunRecord run;
  run.folder = "runs/" + name;
  run.config = "experiment: a\n";
  return run;
}

TEST(Evaluation, DamagedPartsAreSkipped) {
  RunRecord run = run_named("a");
  run.evaluation = Json::parse(R"({"split": "validation", "step": "x", "metrics": {"loss": 1.5, "top1": null}, "confusion": [[1, 2], [3]],
    "classes": [{"name": "cat", "num_samples": 3, "recall": null}, 5], "calibration": [{"confidence": 0.5}, 3],
    "mistakes": [{"index": 3, "label": 0, "predicted": 1, "confidence": 0.75, "file": "x"}, {"index": 4}]})");
  const auto evaluation = make_evaluation(run);
  EXPECT_FALSE(evaluation.contains("confusion"));
  EXPECT_EQ(evaluation["metrics"], Json::parse(R"({"loss": 1.5})"));
  EXPECT_EQ(evaluation["classes"][0]["name"], "cat");
  EXPECT_EQ(evaluation["classes"][1]["name"], "1");
  EXPECT_TRUE(evaluation["calibration"].empty());
  EXPECT_EQ(evaluation["mistakes"], Json::parse(R"([{"index": 3, "label": 0, "predicted": 1, "confidence": 0.75}])"));
}

TEST(CalibrationData, DamagedPartsAreSkipped) {
  RunRecord run = run_named("a");
  EXPECT_TRUE(make_calibration(run).is_null());
  run.calibration = Json::parse(R"({"temperature": "x"})");
  EXPECT_TRUE(make_calibration(run).is_null());
  run.calibration =
      Json::parse(R"({"temperature": 2, "accuracy": {"value": 0.5, "low": 0.25, "high": 0.75}, "rejected": {"value": 1}, "threshold": 3,
    "calibration": {"before": [{"confidence": 0.5, "accuracy": 0.25, "count": 4}, 5]}, "classes": [7, {"name": "cat", "precision_recall": 3}]})");
  const auto calibration = make_calibration(run);
  EXPECT_EQ(calibration["temperature"], 2);
  EXPECT_EQ(calibration["accuracy"]["high"], 0.75);
  EXPECT_TRUE(calibration["rejected"].is_null());
  EXPECT_FALSE(calibration.contains("threshold"));
  EXPECT_EQ(calibration["before"]["calibration"].size(), 1);
  EXPECT_TRUE(calibration["after"]["calibration"].empty());
  EXPECT_EQ(calibration["classes"][0]["name"], "");
  EXPECT_EQ(calibration["classes"][1]["name"], "cat");
  EXPECT_TRUE(calibration["classes"][1]["points"].empty());
}

TEST(Evaluation, OfManyClassesHasTheMostConfusedPairsInsteadOfAMatrix) {
  RunRecord run = run_named("a");
  const auto size = kMostMatrixClasses + 1;
  std::vector<std::vector<int>> matrix(size, std::vector<int>(size, 0));
  matrix[3][5] = 4;
  matrix[9][2] = 6;
  run.evaluation = {{"confusion", matrix}};
  const auto evaluation = make_evaluation(run);
  EXPECT_FALSE(evaluation.contains("confusion"));
  EXPECT_EQ(evaluation["pairs"].size(), 2);
  EXPECT_EQ(evaluation["pairs"][0]["actual"], 9);
}

TEST(ReportData, LongRunsStaySmall) {
  std::vector<RunRecord> runs(3, run_named("a"));
  for (auto& run : runs) {
    for (const char* name : {"loss", "top1", "lr", "images_per_second", "data_wait", "queue_depth", "memory_bytes"}) {
      run.train[name] = ramp(100000);
      for (size_t i = 0; i < 100000; ++i) run.train[name].values[i] = 1 / (1.0 + static_cast<double>(i));
    }
    for (const char* name : {"loss", "top1", "top5", "macro_f1"}) run.validation[name] = ramp(1000);
  }
  EXPECT_LT(make_page(make_data(runs, {})).size(), 2'000'000U);
}

TEST(ReportData, NamesAreThoseOfTheFolders) {
  const auto names = [](const std::vector<RunRecord>& runs) {
    std::vector<std::string> result;
    const auto data = make_data(runs, {});
    for (const auto& run : data["runs"]) result.push_back(run["name"]);
    return result;
  };
  EXPECT_THAT(names({run_named("a"), run_named("b/")}), ElementsAre("a", "b"));
  EXPECT_THAT(names({run_named("x/a"), run_named("y/a")}), ElementsAre("runs/x/a", "runs/y/a"));
}

TEST(ReportData, AsksForPicturesOfMistakes) {
  RunRecord run = run_named("a");
  run.evaluation = Json::parse(R"({"split": "validation", "mistakes": [{"index": 3, "label": 0, "predicted": 1, "confidence": 0.75},
                                                                      {"index": 9, "label": 0, "predicted": 1, "confidence": 0.5}]})");
  const auto read = [](const RunRecord&, const Json& asked) {
    EXPECT_EQ(asked["mistakes"][1]["index"], 9);
    return Pictures{.data_urls = {"data:,x", ""}, .heatmaps = {"", "data:,y"}, .names = {"cat/1.jpg", ""}, .note = "one is missing"};
  };
  const auto evaluation = make_data(std::span(&run, 1), {.read_pictures = read})["runs"][0]["evaluation"];
  EXPECT_EQ(evaluation["mistakes"][0]["image"], "data:,x");
  EXPECT_EQ(evaluation["mistakes"][0]["name"], "cat/1.jpg");
  EXPECT_FALSE(evaluation["mistakes"][1].contains("image"));
  EXPECT_FALSE(evaluation["mistakes"][0].contains("heatmap"));
  EXPECT_EQ(evaluation["mistakes"][1]["heatmap"], "data:,y");
  EXPECT_EQ(evaluation["images_note"], "one is missing");
}

TEST(Page, TextOfRunsIsNeverMarkup) {
  RunRecord run = run_named("</title><script>alert(1)</script>");
  run.message = "</script><script>alert(2)</script><!--{{title}}\xff";
  const auto page = make_page(make_data(std::span(&run, 1), {}));
  EXPECT_THAT(page, Not(HasSubstr("<script>alert(")));
  EXPECT_THAT(page, Not(HasSubstr("</title><script>")));
  EXPECT_THAT(page, HasSubstr("\\u003c/script>\\u003cscript>alert(2)"));
  EXPECT_THAT(page, HasSubstr("{{title}}"));
}

TEST(ReportData, CharactersThatHideTextAreShown) {
  RunRecord run = run_named("a\x1b[2J");
  run.message = "first line\n\u202egpj.exe";
  run.train["lo\x1bss"] = ramp(2);
  const auto data = make_data(std::span(&run, 1), {});
  EXPECT_EQ(data["runs"][0]["name"], "a\\x1b[2J");
  EXPECT_EQ(data["runs"][0]["message"], "first line\n\\xe2\\x80\\xaegpj.exe");
  EXPECT_TRUE(data["runs"][0]["train"].contains("lo\\x1bss"));
  EXPECT_THAT(make_page(data), HasSubstr("<title>a\\x1b[2J"));
}

TEST(Page, OnlyALivePageMayConnect) {
  const auto run = run_named("a");
  EXPECT_THAT(make_page(make_data(std::span(&run, 1), {})), HasSubstr("connect-src 'none'"));
  EXPECT_THAT(make_page(make_data(std::span(&run, 1), {.is_live = true})), HasSubstr("connect-src 'self'"));
}

}  // namespace
}  // namespace trainer::report
