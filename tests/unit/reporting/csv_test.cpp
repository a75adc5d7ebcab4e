#include <gtest/gtest.h>

#include "base/file.h"
#include "reporting/sinks.h"
#include "tests/testing/metrics.h"
#include "tests/testing/temporary_folder.h"

namespace trainer::reporting::test {
namespace {

using testing::detail;
using testing::fraction;
using testing::loss;

const std::string kCsvHeader =
    "epoch,step,lr,train_loss,train_top1,validation_loss,validation_top1,validation_top5,validation_macro_f1,validation_ema_loss,"
    "validation_ema_top1,"
    "validation_ema_top5,seconds,images_per_second\n";

const MetricColumns kCsvColumns = {
    .train = {{.name = "loss"}, {.name = "top1"}},
    .validation = {{.name = "loss"}, {.name = "top1"}, {.name = "top5"}, {.name = "macro_f1", .is_detail = true}}};

TEST(Csv, OneRowPerEpochWithFullPrecision) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "metrics.csv";
  const auto sink = make_csv(file, kCsvColumns);
  EXPECT_EQ(read_file(file), kCsvHeader);
  sink->on_train({.metrics = {loss(9)}});  // no row
  sink->on_epoch({.epoch = 0,
                  .step = 391,
                  .lr = 0.1,
                  .train_metrics = {loss(1.0 / 3), fraction("top1", 0.5525)},
                  .seconds = 12.5,
                  .images_per_second = 4000.25,
                  .validation = ValidationEvent{
                      .metrics = {loss(0.1 + 0.2), fraction("top1", 0.625), fraction("top5", 0.96875), detail("macro_f1", 0.5)}}});
  EXPECT_EQ(read_file(file), kCsvHeader + "0,391,0.1,0.3333333333333333,0.5525,0.30000000000000004,0.625,0.96875,0.5,,,,12.5,4000.25\n");
}

TEST(Csv, CellsWithoutAValueAreEmpty) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "metrics.csv";
  const auto sink = make_csv(file, kCsvColumns);
  sink->on_epoch({.epoch = 1, .step = 2, .lr = 1e-5, .train_metrics = {loss(1.5)}, .seconds = 3, .images_per_second = 4});
  sink->on_epoch({.epoch = 2,
                  .step = 3,
                  .lr = 1e-5,
                  .train_metrics = {loss(1.25)},
                  .seconds = 3,
                  .images_per_second = 4,
                  .validation = ValidationEvent{.metrics = {loss(2.5)}, .ema_metrics = {loss(0.5)}}});
  EXPECT_EQ(read_file(file), kCsvHeader + "1,2,1e-05,1.5,,,,,,,,,3,4\n2,3,1e-05,1.25,,2.5,,,,0.5,,,3,4\n");
}

TEST(Csv, ContinuesAFileWithoutASecondHeader) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "metrics.csv";
  make_csv(file, kCsvColumns)->on_epoch({.epoch = 0, .step = 1, .lr = 1, .train_metrics = {loss(1)}, .seconds = 1, .images_per_second = 1});
  make_csv(file, kCsvColumns)->on_epoch({.epoch = 1, .step = 2, .lr = 1, .train_metrics = {loss(1)}, .seconds = 1, .images_per_second = 1});
  EXPECT_EQ(read_file(file), kCsvHeader + "0,1,1,1,,,,,,,,,1,1\n1,2,1,1,,,,,,,,,1,1\n");
}

TEST(Csv, AContinuedFileKeepsItsColumns) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "metrics.csv";
  make_csv(file, kCsvColumns)->on_epoch({.epoch = 0, .step = 1, .lr = 1, .train_metrics = {loss(1)}, .seconds = 1, .images_per_second = 1});
  auto columns = kCsvColumns;
  columns.train.push_back({.name = "top3"});
  make_csv(file, columns)
      ->on_epoch({.epoch = 1,
                  .step = 2,
                  .lr = 1,
                  .train_metrics = {loss(1), fraction("top1", 0.5), fraction("top3", 0.75)},
                  .seconds = 1,
                  .images_per_second = 1});
  EXPECT_EQ(read_file(file), kCsvHeader + "0,1,1,1,,,,,,,,,1,1\n1,2,1,1,0.5,,,,,,,,1,1\n");
}

}  // namespace
}  // namespace trainer::reporting::test
