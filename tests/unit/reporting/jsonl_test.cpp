#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "reporting/sinks.h"
#include "tests/testing/metrics.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer::reporting::test {
namespace {

using testing::detail;
using testing::fraction;
using testing::loss;

using nlohmann::json;

// The lines that `emit` writes to a metrics file, each without its time, which is checked here.
template <typename Emit>
std::vector<json> jsonl_lines(Emit emit) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  const auto seconds = [] { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); };
  const double before = seconds();
  const auto sink = make_jsonl(file);
  emit(*sink);
  std::istringstream content(read_file(file));
  std::vector<json> lines;
  for (std::string line; std::getline(content, line);) {
    lines.push_back(json::parse(line));
    EXPECT_GE(lines.back().at("time").get<double>(), before);
    EXPECT_LE(lines.back().at("time").get<double>(), seconds());
    lines.back().erase("time");
  }
  return lines;
}

TEST(Jsonl, TheCheckpointThatARunResumesFromIsRecordedAgain) {
  const auto lines = jsonl_lines([](Sink& sink) {
    sink.on_checkpoint({.epoch = 1, .step = 7, .file = "run/step_7.pt", .num_bytes = 100, .pause_seconds = 0.25, .seconds = 1.5});
    constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
    const CheckpointEvent own{
        .epoch = 1, .step = 7, .file = "run/step_7.pt", .num_bytes = 100, .pause_seconds = kUnknown, .seconds = kUnknown};
    sink.on_start({.resume = Resume{.checkpoint = "run/last.pt", .epoch = 1, .step = 7, .own_checkpoint = own}});
    sink.on_start({.resume = Resume{.checkpoint = "other/step_7.pt", .epoch = 1, .step = 7}});
  });
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0], json::parse(R"({"event": "checkpoint", "epoch": 1, "step": 7, "file": "run/step_7.pt", "bytes": 100,
                                      "pause_seconds": 0.25, "seconds": 1.5})"));
  EXPECT_EQ(lines[1], json::parse(R"({"event": "checkpoint", "epoch": 1, "step": 7, "file": "run/step_7.pt", "bytes": 100,
                                      "pause_seconds": null, "seconds": null})"));
  EXPECT_EQ(lines[2].at("event"), "resume");
  EXPECT_EQ(lines[2].at("checkpoint"), "run/last.pt");
  EXPECT_EQ(lines[3].at("event"), "resume");
}

TEST(Jsonl, OneObjectPerEventWithTheDocumentedKeys) {
  const auto lines = jsonl_lines([](Sink& sink) {
    sink.on_start({.num_epochs = 2, .steps_per_epoch = 5, .world_size = 4, .global_batch_size = 512, .num_parameters = 11173962});
    sink.on_train({.epoch = 1,
                   .num_epochs = 2,
                   .step = 7,
                   .step_in_epoch = 2,
                   .steps_per_epoch = 5,
                   .metrics = {loss(1.5), fraction("top1", 0.25)},
                   .lr = 0.1,
                   .images_per_second = 4321.5,
                   .data_wait = 0.02,
                   .queue_depth = 3.5,
                   .memory_bytes = 1024,
                   .eta_seconds = 9});
    sink.on_warning({.epoch = 1, .step = 7, .message = "a slow rank"});
    sink.on_validation({.epoch = 1,
                        .num_epochs = 2,
                        .step = 10,
                        .metrics = {loss(1.25), fraction("top1", 0.5), fraction("top5", 0.75), detail("macro_f1", 0.375)},
                        .num_samples = 10000,
                        .seconds = 2.5});
    sink.on_validation({.metrics = {loss(1)}, .ema_metrics = {loss(2.5), fraction("top1", 0.25), fraction("top5", 0.625)}, .seconds = 1});
    sink.on_end({.reason = "done", .epoch = 1, .step = 10, .seconds = 60.5, .images_per_second = 4000.0});
    sink.on_start({.num_epochs = 2,
                   .num_steps = 8,
                   .steps_per_epoch = 5,
                   .metrics = {.train = {loss(0).info}, .validation = {loss(0).info, fraction("top1", 0).info}},
                   .monitor = "validation/top1",
                   .higher_is_better = true});
    sink.on_checkpoint({.step = 7, .file = "step_7.pt", .removed = {"step_5.pt"}});
  });
  ASSERT_EQ(lines.size(), 8U);
  EXPECT_EQ(lines[6].at("num_steps"), 8);
  EXPECT_EQ(lines[6].at("monitor"), "validation/top1");
  EXPECT_EQ(lines[6].at("mode"), "max");
  EXPECT_EQ(lines[6].at("metrics"), json::parse(R"({"loss": {"higher_is_better": false, "format": "number"},
                                                    "top1": {"higher_is_better": true, "format": "percent"}})"));
  EXPECT_EQ(lines[7].at("removed"), json::array({"step_5.pt"}));
  EXPECT_EQ(lines[0], json::parse(R"({"event": "start", "epoch": 0, "step": 0, "num_epochs": 2, "steps_per_epoch": 5, "world_size": 4,
                                      "global_batch_size": 512, "num_parameters": 11173962, "metrics": {}})"));
  EXPECT_EQ(lines[1], json::parse(R"({"event": "train", "epoch": 1, "step": 7, "loss": 1.5, "top1": 0.25, "lr": 0.1,
                                      "images_per_second": 4321.5, "data_wait": 0.02, "queue_depth": 3.5, "memory_bytes": 1024})"));
  EXPECT_EQ(lines[2], json::parse(R"({"event": "warning", "epoch": 1, "step": 7, "message": "a slow rank"})"));
  EXPECT_EQ(lines[3], json::parse(R"({"event": "validation", "epoch": 1, "step": 10, "loss": 1.25, "top1": 0.5, "top5": 0.75,
                                      "macro_f1": 0.375, "num_samples": 10000, "seconds": 2.5})"));
  EXPECT_EQ(lines[4], json::parse(R"({"event": "validation", "epoch": 0, "step": 0, "loss": 1.0, "num_samples": 0, "ema_loss": 2.5,
                                      "ema_top1": 0.25, "ema_top5": 0.625, "seconds": 1.0})"));
  EXPECT_EQ(lines[5], json::parse(R"({"event": "end", "epoch": 1, "step": 10, "reason": "done", "seconds": 60.5,
                                      "images_per_second": 4000.0})"));
}

TEST(Jsonl, OmitsKeysWithoutAValue) {
  const auto lines = jsonl_lines([](Sink& sink) {
    sink.on_train({.metrics = {loss(1.5)}});
    sink.on_validation({.metrics = {loss(1.25)}});
  });
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_FALSE(lines[0].contains("top1"));
  EXPECT_FALSE(lines[1].contains("top1"));
  EXPECT_FALSE(lines[1].contains("top5"));
}

TEST(Jsonl, NumbersAreReadBackExactly) {
  for (const double value : {1.0 / 3, 0.1, 2.3283064365386963e-10, 5e-324, std::numeric_limits<double>::max(), 1.0, 0.0}) {
    const auto lines = jsonl_lines([&](Sink& sink) { sink.on_train({.metrics = {loss(value)}, .lr = value}); });
    EXPECT_EQ(lines.at(0).at("loss").get<double>(), value);
    EXPECT_EQ(lines.at(0).at("lr").get<double>(), value);
  }
}

TEST(Jsonl, ALossThatIsNotFiniteIsNull) {
  const auto lines = jsonl_lines([](Sink& sink) {
    sink.on_train({.metrics = {loss(std::nan(""))}});
    sink.on_validation({.metrics = {loss(std::numeric_limits<double>::infinity())}});
  });
  EXPECT_TRUE(lines.at(0).at("loss").is_null());
  EXPECT_TRUE(lines.at(1).at("loss").is_null());
}

TEST(Jsonl, AFailureHasItsMessage) {
  const auto lines = jsonl_lines([](Sink& sink) { sink.on_end({.reason = "failed", .message = "cannot read \xff.png"}); });
  EXPECT_EQ(lines.at(0).at("reason"), "failed");
  EXPECT_EQ(lines.at(0).at("message"), "cannot read \ufffd.png");
}

TEST(Jsonl, AppendsToAnExistingFile) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  make_jsonl(file)->on_train({.step = 1});
  make_jsonl(file)->on_train({.step = 2});
  std::istringstream content(read_file(file));
  std::string line;
  ASSERT_TRUE(std::getline(content, line));
  EXPECT_EQ(json::parse(line).at("step"), 1);
  ASSERT_TRUE(std::getline(content, line));
  EXPECT_EQ(json::parse(line).at("step"), 2);
}

TEST(Jsonl, ErrorNamesAFileThatCannotBeWritten) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "absent" / "metrics.jsonl";
  try {
    make_jsonl(file);
    FAIL() << "made";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(file.string()), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace trainer::reporting::test
