#include <gtest/gtest.h>

#include <memory>

#include "reporting/values.h"

namespace trainer::reporting::test {
namespace {

const Fields kLineFields = {{"epoch 3/100"}, {"loss 1.2345", 2}, {"data 2%", 1}, {"mem 1.2 GiB", 1}, {"ETA 3m12s", 3}};

TEST(Line, HasTwoSpacesBetweenFields) {
  EXPECT_EQ(to_line({}), "");
  EXPECT_EQ(to_line(kLineFields), "epoch 3/100  loss 1.2345  data 2%  mem 1.2 GiB  ETA 3m12s");
}

TEST(Line, IsFittedByLeavingOutTheLeastImportantFields) {
  const auto line = [](size_t width) { return to_line(fitted(kLineFields, width)); };
  EXPECT_EQ(line(57), to_line(kLineFields));
  EXPECT_EQ(line(56), "epoch 3/100  loss 1.2345  data 2%  ETA 3m12s");
  EXPECT_EQ(line(43), "epoch 3/100  loss 1.2345  ETA 3m12s");
  EXPECT_EQ(line(22), "epoch 3/100  ETA 3m12s");
  EXPECT_EQ(line(5), "epoch 3/100");
}

TEST(Line, IsWrappedBetweenFields) {
  EXPECT_EQ(wrapped({}, 20), "");
  EXPECT_EQ(wrapped(kLineFields, 57), to_line(kLineFields));
  EXPECT_EQ(wrapped(kLineFields, 56), "epoch 3/100  loss 1.2345  data 2%  mem 1.2 GiB\n  ETA 3m12s");
  EXPECT_EQ(wrapped(kLineFields, 24), "epoch 3/100  loss 1.2345\n  data 2%  mem 1.2 GiB\n  ETA 3m12s");
  EXPECT_EQ(wrapped({{"checkpoint"}, {"a/long/path/of/a/file.pt"}, {"1 B"}}, 20), "checkpoint\n  a/long/path/of/a/file.pt\n  1 B");
}

TEST(Values, TargetsKeepTheDigitsInWhichTheyDiffer) {
  EXPECT_EQ(format_target(0.123456789), "0.123457");
  EXPECT_EQ(format_target(-9999.5), "-9999.5");
  EXPECT_EQ(format_target(1700000030.25), "1700000030.25");
  EXPECT_EQ(format_target(20231006), "20231006.00");
  EXPECT_EQ(format_target(-1e30), "-1e+30");
}

TEST(Line, OnlyATerminalHasAWidth) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  EXPECT_EQ(line_width(file.get()), std::nullopt);
}

}  // namespace
}  // namespace trainer::reporting::test
