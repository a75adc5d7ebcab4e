#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "reporting/sinks.h"
#include "run/run_directory.h"
#include "tests/testing/metrics.h"
#include "tests/testing/temporary_folder.h"

namespace trainer::reporting::test {
namespace {

using testing::fraction;
using testing::loss;

TEST(Summary, HasFinalAndBestMetrics) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "summary.json";
  const auto sink = make_summary(file);
  EXPECT_FALSE(std::filesystem::exists(file));
  sink->on_end({.reason = "done",
                .epoch = 2,
                .step = 30,
                .seconds = 12.5,
                .images_per_second = 100.25,
                .monitor = "validation/top1",
                .higher_is_better = true,
                .final_validation =
                    ValidationEvent{
                        .epoch = 2, .step = 30, .metrics = {loss(1.5), fraction("top1", 0.25), fraction("top5", 0.75)}, .num_samples = 500},
                .best_validation = ValidationEvent{
                    .epoch = 1, .step = 20, .metrics = {loss(1.25), fraction("top1", 0.5), fraction("top5", 0.875)}, .num_samples = 500}});
  EXPECT_EQ(nlohmann::json::parse(read_file(file)),
            nlohmann::json::parse(R"({"reason": "done", "epoch": 2, "step": 30, "seconds": 12.5, "images_per_second": 100.25,
              "monitor": "validation/top1", "mode": "max",
              "final": {"epoch": 2, "step": 30, "loss": 1.5, "top1": 0.25, "top5": 0.75, "num_samples": 500},
              "best": {"epoch": 1, "step": 20, "loss": 1.25, "top1": 0.5, "top5": 0.875, "num_samples": 500}})"));
}

TEST(Summary, AFailureIsWrittenWithItsMessageAndReplacesAnEarlierSummary) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "summary.json";
  make_summary(file)->on_end({.reason = "stopped", .step = 1, .monitor = "validation/loss"});
  make_summary(file)->on_end({.reason = "failed", .message = "disk full", .step = 3, .monitor = "validation/loss"});
  EXPECT_EQ(nlohmann::json::parse(read_file(file)),
            nlohmann::json::parse(R"({"reason": "failed", "message": "disk full", "epoch": 0, "step": 3, "seconds": 0.0,
              "images_per_second": 0.0, "monitor": "validation/loss", "mode": "min"})"));
}

TEST(Summary, RunDirectoryRecognisesAFinishedRun) {
  const testing::TemporaryFolder folder;
  const run::RunDirectory directory(folder.path());
  const auto sink = make_summary(directory.summary_file());
  sink->on_end({.reason = "stopped"});
  EXPECT_EQ(directory.earlier_run(), run::RunDirectory::EarlierRun::kUnfinished);
  sink->on_end({.reason = "done"});
  EXPECT_EQ(directory.earlier_run(), run::RunDirectory::EarlierRun::kFinished);
}

}  // namespace
}  // namespace trainer::reporting::test
