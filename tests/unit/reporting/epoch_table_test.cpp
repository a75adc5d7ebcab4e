#include <gmock/gmock.h>

#include <cmath>
#include <sstream>

#include "reporting/progress_bar.h"
#include "tests/testing/metrics.h"

namespace trainer::reporting::test {
namespace {

using testing::fraction;
using ::testing::HasSubstr;
using testing::loss;
using ::testing::Not;

const MetricColumns kClassification = {.train = {loss(0).info, fraction("top1", 0).info},
                                       .validation = {loss(0).info, fraction("top1", 0).info, fraction("top5", 0).info}};

EpochEvent table_epoch(int64_t epoch, int64_t num_epochs = 12) {
  return {.epoch = epoch,
          .num_epochs = num_epochs,
          .lr = 0.05,
          .train_metrics = {loss(1.25), fraction("top1", 0.5)},
          .seconds = 60,
          .images_per_second = 312.6,
          .validation = ValidationEvent{.metrics = {loss(1.5), fraction("top1", 0.25), fraction("top5", 1)}, .seconds = 10}};
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(EpochTable, HasAHeadingAndARowOfEachEpoch) {
  EpochTable table(kClassification, false, false);
  EXPECT_EQ(table.lines(table_epoch(0), 79),
            "* best   ---- train -----  ------ validation -------\n"
            "  epoch     loss     top1     loss     top1     top5       lr    time   img/s\n"
            "   1/12   1.2500   50.00%   1.5000   25.00%  100.00%   0.0500   1m10s     313\n");
  auto second = table_epoch(9);
  second.validation->is_best = true;
  EXPECT_EQ(table.lines(second, 79), "* 10/12   1.2500   50.00%   1.5000   25.00%  100.00%   0.0500   1m10s     313\n");
  second.validation.reset();
  EXPECT_EQ(table.lines(second, 79), "  10/12   1.2500   50.00%        -        -        -   0.0500   1m00s     313\n");
}

TEST(EpochTable, HasNoColumnsOfAValidationThatIsOff) {
  EpochTable table({.train = kClassification.train, .validation = {}}, false, false);
  auto event = table_epoch(0);
  event.validation.reset();
  EXPECT_EQ(table.lines(event, 79),
            "         ---- train -----\n"
            "  epoch     loss     top1       lr    time   img/s\n"
            "   1/12   1.2500   50.00%   0.0500   1m00s     313\n");
}

TEST(EpochTable, TheBestRowIsBold) {
  EpochTable table(kClassification, false, true);
  table.lines(table_epoch(0), 20);
  auto event = table_epoch(1);
  event.validation->is_best = true;
  EXPECT_EQ(table.lines(event, 20), "\x1b[1m*  2/12   1.5000\x1b[0m\n");
}

TEST(EpochTable, LeavesOutColumnsOfANarrowTerminalAndKeepsTheOthersInPlace) {
  EpochTable table(kClassification, false, false);
  EXPECT_EQ(table.lines(table_epoch(0), 39),
            "* best    train   -- validation --\n"
            "  epoch     loss     loss     top1\n"
            "   1/12   1.2500   1.5000   25.00%\n");
  for (size_t width = 7; width <= 120; ++width) {
    EpochTable fresh(kClassification, true, false);
    auto text = fresh.lines(table_epoch(0, 100000), width);
    text += fresh.lines(table_epoch(99999, 100000), width);
    const auto lines = split_lines(text);
    ASSERT_EQ(lines.size(), 4U) << width;
    for (const auto& line : lines) EXPECT_LE(line.size(), std::max<size_t>(width, 15)) << line;
    for (const auto& line : {lines[2], lines[3]}) EXPECT_EQ(line.size(), lines[1].size()) << line;
  }
}

TEST(EpochTable, RepeatsTheHeadingWhenOtherColumnsFit) {
  EpochTable table(kClassification, false, false);
  EXPECT_EQ(split_lines(table.lines(table_epoch(0), 79)).size(), 3U);
  EXPECT_EQ(split_lines(table.lines(table_epoch(1), 39)).size(), 3U);
  EXPECT_EQ(split_lines(table.lines(table_epoch(2), 39)).size(), 1U);
  EXPECT_EQ(split_lines(table.lines(table_epoch(3), 119)).size(), 3U);
}

TEST(EpochTable, HasTheAveragedParametersWhereThereIsRoom) {
  EpochTable table(kClassification, true, false);
  auto event = table_epoch(0);
  event.validation->ema_metrics = {loss(0.5), fraction("top1", 0.75), fraction("top5", 1)};
  const auto lines = table.lines(event, 119);
  EXPECT_THAT(lines, HasSubstr("------ validation -------  ---------- ema ----------\n"));
  EXPECT_THAT(lines, HasSubstr("   1.5000   25.00%  100.00%   0.5000   75.00%  100.00%   0.0500"));
  EXPECT_THAT(table.lines(event, 79), Not(HasSubstr("ema")));
}

TEST(EpochTable, EveryNumberFitsItsColumn) {
  for (const double value : {0.0, 1.0, -1.0, 12.34567, 123.4567, -123.4567, 99999.5, 999999.4, 1e6, 1.234e30, 1e-7, -1.5e-300, std::nan(""),
                             static_cast<double>(INFINITY), -static_cast<double>(INFINITY)}) {
    EpochTable table({.train = {loss(0).info}, .validation = {}}, false, false);
    auto event = table_epoch(0);
    event.train_metrics = {loss(value)};
    const auto lines = split_lines(table.lines(event, 16));
    EXPECT_EQ(lines.back().size(), lines[1].size()) << value << ": " << lines.back();
  }
}

}  // namespace
}  // namespace trainer::reporting::test
