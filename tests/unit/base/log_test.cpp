#include "base/log.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/testing/temporary_folder.h"

namespace trainer {
namespace {

TEST(Log, LinesHoldNothingThatATerminalExecutes) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "train.log";
  ::testing::internal::CaptureStderr();
  {
    const auto logger = make_console_logger();
    add_file(*logger, file);
    logger->info("{}", "a name\x1b[2J\r");
    logger->warn("{}", "Größe\n\tzweite Zeile \x9b");
    logger->info("{}", "at http://bob:pass@host/a?token=1");
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "a name\\x1b[2J\\x0d\nwarning: Größe\n\tzweite Zeile \\x9b\nat http://***@host/a?***\n");
  const auto text = read_file(file);
  EXPECT_NE(text.find("info: a name\\x1b[2J\\x0d\n"), std::string::npos) << text;
  EXPECT_NE(text.find("warning: Größe\n\tzweite Zeile \\x9b\n"), std::string::npos) << text;
}

TEST(Log, OtherRanksPrintOnlyWarnings) {
  ::testing::internal::CaptureStderr();
  {
    const auto logger = make_console_logger(3);
    logger->info("an interval");
    logger->warn("a \x1b problem");
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "rank 3: warning: a \\x1b problem\n");
}

TEST(Log, AnotherProcessErasesTheBarOnTheLine) {
  ::testing::internal::CaptureStderr();
  {
    const auto logger = make_console_logger(3, /*erases_line=*/true);
    logger->info("an interval");
    logger->warn("slow");
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "\r\x1b[Krank 3: warning: slow\n");
}

}  // namespace
}  // namespace trainer
