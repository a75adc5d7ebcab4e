#include "report/history/run_record.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "base/file_lock.h"
#include "report/history/run_comparison.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer::history {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RunRecordTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    std::ofstream(folder_.path() / name) << text;
  }
  RunRecord read(Detail detail = Detail::kAll) const { return read_run(folder_.path(), detail); }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  testing::TemporaryFolder folder_;
};

constexpr const char* kStart = R"({"event":"start","time":100,"epoch":0,"step":0,"num_epochs":3,"steps_per_epoch":10,"num_parameters":7,)"
                               R"("monitor":"validation/top1","mode":"max","metrics":{"top1":{"format":"percent"}}}
)";

std::string train(int step, double time, const char* loss) {
  return R"({"event":"train","time":)" + std::to_string(time) + R"(,"epoch":)" + std::to_string((step - 1) / 10) + R"(,"step":)" +
         std::to_string(step) + R"(,"loss":)" + loss + R"(,"lr":0.1})" + "\n";
}

std::string validation(int step, double top1) {
  return R"({"event":"validation","time":)" + std::to_string(100 + step) + R"(,"epoch":)" + std::to_string((step - 1) / 10) +
         R"(,"step":)" + std::to_string(step) + R"(,"loss":1.5,"top1":)" + std::to_string(top1) + R"(,"num_samples":50,"seconds":0.5})" +
         "\n";
}

TEST_F(RunRecordTest, ReadsSeriesAndTheBestValidation) {
  write("metrics.jsonl", kStart + train(5, 105, "2.5") + train(10, 110, "2") + validation(10, 0.5) + train(20, 120, "1") +
                             validation(20, 0.75) + validation(30, 0.5) +
                             R"({"event":"end","time":130,"epoch":2,"step":30,"reason":"done",)" +
                             R"("seconds":30,"images_per_second":99.5})" + "\n");
  const auto run = read();
  EXPECT_EQ(run.state, State::kDone);
  EXPECT_THAT(run.train.at("loss").steps, ElementsAre(5, 10, 20));
  EXPECT_THAT(run.train.at("loss").values, ElementsAre(2.5, 2, 1));
  EXPECT_THAT(run.validation.at("top1").values, ElementsAre(0.5, 0.75, 0.5));
  EXPECT_FALSE(run.validation.contains("num_samples"));
  ASSERT_TRUE(run.best);
  EXPECT_EQ(run.best->metric, "top1");
  EXPECT_EQ(run.best->epoch, 1);
  EXPECT_EQ(progress_of(run), "3/3");
  EXPECT_EQ(run.seconds, 30);
  EXPECT_EQ(run.images_per_second, 99.5);
  const auto overview = read(Detail::kOverview);
  EXPECT_TRUE(overview.train.empty());
  EXPECT_EQ(overview.best->value, 0.75);
  EXPECT_EQ(overview.seconds, 30);
}

TEST_F(RunRecordTest, TheFileSaysInWhichDirectionTheMetricIsTheBest) {
  const auto values = validation(10, 0.5) + validation(20, 0.25);
  write("metrics.jsonl", kStart + values);
  EXPECT_EQ(read().best->value, 0.5);
  std::string lowest = kStart;
  write("metrics.jsonl", lowest.replace(lowest.find("max"), 3, "min") + values);
  EXPECT_EQ(read().best->value, 0.25);
}

TEST_F(RunRecordTest, TheFileSaysWhichMetricsArePercentages) {
  write("metrics.jsonl", kStart + validation(10, 0.5));
  EXPECT_EQ(format_metric(read(), "top1", 0.5), "50.00%");
  write("metrics.jsonl", std::string(R"({"event":"start","step":0,"monitor":"validation/brier","mode":"min","metrics":{"brier":)") +
                             R"({"higher_is_better":false,"format":"number"},"iou":{"higher_is_better":true,"format":"percent"}}})" + "\n" +
                             R"({"event":"validation","step":1,"brier":0.25})" + "\n" + R"({"event":"validation","step":2,"brier":0.5})" +
                             "\n");
  const auto run = read();
  EXPECT_EQ(run.best->metric, "brier");
  EXPECT_EQ(run.best->value, 0.25);
  EXPECT_EQ(format_metric(run, "brier", 0.25), "0.2500");
  EXPECT_EQ(format_metric(run, "ema_iou", 0.25), "25.00%");
  EXPECT_EQ(format_metric(run, "top1", 0.25), "0.2500");
}

TEST_F(RunRecordTest, AClockThatWasSetBackTakesNoTimeAway) {
  write("metrics.jsonl", kStart + train(10, 110, "2") + train(11, 50, "2") + validation(20, 0.5) + train(21, 20, "2") +
                             R"({"event":"end","time":25,"step":30,"reason":"stopped"})" + "\n" +
                             R"({"event":"resume","time":10,"step":30})" + "\n" + train(40, 17, "1"));
  // In seconds: 10 until step 10, 70 until the validation at time 120, 5 until the end, 7 in the second session.
  for (const auto detail : {Detail::kAll, Detail::kOverview}) EXPECT_EQ(read(detail).seconds, 92);
}

TEST_F(RunRecordTest, AFileWithoutItsBeginningHasTheTimeOfItsEvents) {
  // The last line has a form that runs do not write.
  write("metrics.jsonl", train(10, 110, "2") + train(20, 120, "2") + R"({"step":30,"event":"train","time":125})" + "\n");
  for (const auto detail : {Detail::kAll, Detail::kOverview}) EXPECT_EQ(read(detail).seconds, 15);
}

TEST_F(RunRecordTest, HalfWrittenLinesAndOtherValuesAreSkipped) {
  write("metrics.jsonl", kStart + train(5, 105, "NaN") + train(6, 106, "null") + "{\"event\":\"tr\n\n[1]\n{\"event\":3,\"step\":\"x\"}\n" +
                             train(7, 107, "1") + R"({"event":"train","time":108,"step":8,"lo)");
  write("environment.json", "{\"ranks\": [");
  const auto run = read();
  EXPECT_THAT(run.train.at("loss").steps, ElementsAre(6, 7));
  EXPECT_TRUE(std::isnan(run.train.at("loss").values.front()));
  EXPECT_EQ(run.step, 7);
  EXPECT_EQ(run.state, State::kFailed);
  EXPECT_EQ(place_of(run), "");
  EXPECT_FALSE(run.best);
}

TEST_F(RunRecordTest, TimeBetweenSessionsDoesNotCount) {
  const std::string first = kStart + train(10, 110, "2") + R"({"event":"end","time":111,"epoch":0,"step":10,"reason":"stopped"})" + "\n";
  write("metrics.jsonl", first);
  EXPECT_EQ(read().state, State::kStopped);
  const std::string second = R"({"event":"checkpoint","time":499,"step":10,"pause_seconds":null,"seconds":null})"
                             "\n"
                             R"({"event":"resume","time":500,"epoch":1,"step":10,"checkpoint":"a","num_epochs":3,"steps_per_epoch":10})"
                             "\n" +
                             train(20, 520, "1");
  write("metrics.jsonl", first + second);
  for (const auto detail : {Detail::kAll, Detail::kOverview}) {
    const auto run = read(detail);
    EXPECT_EQ(run.seconds, 11 + 20);
    EXPECT_EQ(run.started, 100);
    EXPECT_EQ(run.state, State::kFailed);  // it neither ended nor holds the lock
    EXPECT_EQ(run.step, 20);
  }
}

TEST_F(RunRecordTest, ARunIsRunningWhileItsLockIsHeld) {
  write("metrics.jsonl", kStart);
  const auto process = ::fork();
  if (process == 0) {
    const FileLock held(path() / ".lock", {});
    _exit(held.is_held() ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(process, &status, 0), process);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(read().state, State::kFailed);  // killed: no process holds it any more
  const FileLock lock(path() / ".lock", {});
  EXPECT_EQ(read().state, State::kRunning);
}

TEST_F(RunRecordTest, EarlyStoppingAndErrors) {
  const auto end = [](const char* reason) {
    return std::string(R"({"event":"end","time":111,"reason":")") + reason + "\",\"message\":\"m\"}\n";
  };
  write("metrics.jsonl", kStart + end("early"));
  EXPECT_EQ(read().state, State::kEarly);
  write("metrics.jsonl", kStart + end("failed"));
  EXPECT_EQ(read().state, State::kFailed);
  EXPECT_EQ(read().message, "m");
}

TEST_F(RunRecordTest, ALengthInSteps) {
  write("metrics.jsonl", R"({"event":"start","time":1,"step":0,"num_epochs":3,"num_steps":25,"steps_per_epoch":10})"
                         "\n" +
                             train(5, 2, "1"));
  EXPECT_EQ(progress_of(read()), "step 5/25");
}

TEST_F(RunRecordTest, FindsRunsInFolders) {
  write("a/metrics.jsonl", kStart);
  write("sweep/b/environment.json", "{}");
  write("sweep/b/checkpoints/metrics.jsonl", "");  // inside a run directory, so it is not a run
  write("other/notes.txt", "");
  auto found = find_runs(path());
  std::ranges::sort(found);
  EXPECT_THAT(found, ElementsAre(path() / "a", path() / "sweep" / "b"));
  EXPECT_THAT(find_runs(path() / "a"), ElementsAre(path() / "a"));
}

std::string refusal_of(const std::filesystem::path& folder) {
  try {
    read_run(folder, Detail::kOverview);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "read";
}

TEST_F(RunRecordTest, FoldersWithoutARunAreRefused) {
  const auto folder = path().string();
  EXPECT_EQ(refusal_of(folder),
            folder + ": this is not a run directory, because it has no metrics.jsonl; `trainer runs " + folder + "` lists the runs in it");
  EXPECT_EQ(refusal_of(folder + "/b"), folder +
                                           "/b: there is no such folder; name the folder of a run, such as runs/<experiment>; "
                                           "`trainer runs` lists them");
  try {
    find_runs(folder + "/b");
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/b: there is no such folder; name the folder that holds the runs"));
  }
}

TEST_F(RunRecordTest, WhereItRan) {
  write("metrics.jsonl", kStart);
  const auto place = [&](const char* ranks) {
    write("environment.json", std::string("{\"ranks\": ") + ranks + "}");
    return place_of(read());
  };
  EXPECT_EQ(place(R"([{"host": "a", "device": "cpu"}])"), "a, cpu");
  EXPECT_EQ(place(R"([{"host": "a", "device": "cuda:0"}, {"host": "a", "device": "cuda:1"}])"), "a, 2 x cuda");
  EXPECT_EQ(place(R"([{"host": "a", "device": "cuda:0"}, {"host": "b", "device": "cuda:0"}])"), "a and 1 more host, 2 x cuda");
  EXPECT_EQ(place("3"), "");
}

const Row& row_of(const std::vector<Row>& rows, const std::string& name) {
  const auto found = std::ranges::find(rows, name, &Row::name);
  if (found == rows.end()) throw std::out_of_range(name);
  return *found;
}

TEST(CompareRuns, ShowsValuesSideBySide) {
  std::vector<RunRecord> runs(3);
  runs[0].config = "experiment: a\noptimizer: {name: sgd, lr: 0.1}\ndataset: {train_transforms: [{resize: {size: 8}}, grey]}\n";
  runs[1].config = "experiment: a\noptimizer: {name: sgd, lr: 0.2, momentum: 0.9}\n";
  runs[2].config = "{";  // damaged
  const auto rows = config_rows(runs);
  EXPECT_FALSE(row_of(config_rows(std::span(runs).first(2)), "experiment").differs());
  EXPECT_TRUE(row_of(rows, "experiment").differs());  // the third run has no value
  EXPECT_THAT(row_of(rows, "optimizer.lr").values, ElementsAre("0.1", "0.2", std::nullopt));
  EXPECT_THAT(row_of(rows, "optimizer.momentum").values, ElementsAre(std::nullopt, "0.9", std::nullopt));
  EXPECT_EQ(row_of(rows, "dataset.train_transforms").values.front(), "[{resize: {size: 8}}, grey]");
}

TEST(CompareRuns, ValuesOfRanksAreOneValue) {
  std::vector<RunRecord> runs(1);
  runs[0].environment = Json::parse(R"({"command_line": ["--config", "a b.yaml"], "fused": true,
    "ranks": [{"host": "a", "process_id": 5, "device": "cpu"}, {"host": "b", "process_id": 6, "device": "cpu"}]})");
  const auto rows = environment_rows(runs);
  EXPECT_EQ(rows.size(), 4);
  EXPECT_EQ(row_of(rows, "command_line").values.front(), "--config a b.yaml");
  EXPECT_EQ(row_of(rows, "fused").values.front(), "true");
  EXPECT_EQ(row_of(rows, "ranks.host").values.front(), "a, b");
  EXPECT_EQ(row_of(rows, "ranks.device").values.front(), "cpu");
}

TEST_F(RunRecordTest, TrainingMetricsAreTheMeansOfTheLastWholeEpoch) {
  write("metrics.jsonl", kStart + train(10, 110, "9"));
  EXPECT_TRUE(read().epoch_means.empty());
  // The last line is still being written.
  write("metrics.csv",
        "epoch,step,lr,train_loss,train_top1,train_mae,validation_loss,seconds\n"
        "0,10,0.1,3.5,0.25,,4,1\n"
        "1,20,0.1,1.5,nan,,2,1\n"
        "2,30,0.1,0.5");
  const std::vector<RunRecord> runs = {read()};
  const auto rows = result_rows(runs);
  EXPECT_EQ(row_of(rows, "train loss").values.front(), "1.5000");
  EXPECT_EQ(row_of(rows, "train top1").values.front(), "-");
  EXPECT_FALSE(runs[0].epoch_means.contains("mae"));
}

TEST(CompareRuns, OtherValidationSamplesAreNoted) {
  std::vector<RunRecord> runs(3);
  for (size_t i = 0; i < 3; ++i) runs[i].folder = std::string(1, static_cast<char>('a' + i));
  // The second run does not validate.
  runs[0].environment = Json::parse(R"({"validation_samples": "615 samples, digest 01"})");
  runs[2].environment = runs[0].environment;
  const auto note = [&] { return note_of_validation(runs, config_rows(runs)); };
  EXPECT_EQ(note(), "");
  runs[2].environment["validation_samples"] = "610 samples, digest 02";
  EXPECT_THAT(note(), HasSubstr("a and c validate on different samples (615 samples, digest 01; 610 samples, digest 02), so"));
  runs[0].config = "dataset: {split: {folds: 5, fold: 0}}";
  runs[2].config = "dataset: {split: {folds: 5, fold: 1}}";
  EXPECT_EQ(note(), "") << "folds of a cross-validation";
}

TEST(CompareRuns, Results) {
  std::vector<RunRecord> runs(1);
  runs[0].steps_per_epoch = 10;
  runs[0].percentages = {"top1"};
  runs[0].best = Best{.metric = "top1", .value = 0.5, .epoch = 1, .step = 20};
  runs[0].validation["top1"] = {{10, 20}, {0.5, 0.25}};
  runs[0].seconds = 65;
  const auto rows = result_rows(runs);
  EXPECT_EQ(row_of(rows, "best top1").values.front(), "50.00%, epoch 2");
  EXPECT_EQ(row_of(rows, "validation top1").values.front(), "25.00%");
  EXPECT_EQ(row_of(rows, "time").values.front(), "1m05s");
}

}  // namespace
}  // namespace trainer::history
