#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

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

TEST(Log, AFileTellsThatStderrHasLostLines) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "train.log";
  const auto log_to = [&](const char* terminal) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(::open(terminal, O_WRONLY), STDERR_FILENO);
      const auto logger = make_console_logger();
      add_file(*logger, file);
      for (const char* line : {"one", "two", "three"}) logger->info(line);
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    auto text = read_file(file);
    std::filesystem::remove(file);
    for (auto begin = text.find("20"); begin != std::string::npos; begin = text.find("\n20")) text.erase(begin + (begin > 0), 24);
    return text;
  };
  EXPECT_EQ(log_to("/dev/full"),
            "warning: cannot write to stderr: No space left on device; lines may be missing there, but not in log files such as this one\n"
            "info: one\ninfo: two\ninfo: three\n");
  EXPECT_EQ(log_to("/dev/null"), "info: one\ninfo: two\ninfo: three\n");
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
