#include "run/run_directory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "tests/testing/temporary_folder.h"

namespace trainer::run {
namespace {

void write_text(const std::filesystem::path& file, const std::string& text) { std::ofstream(file) << text; }

template <typename ErrorType>
std::string message_of_opening(const std::filesystem::path& path) {
  try {
    const RunDirectory directory(path);
  } catch (const ErrorType& error) {
    return error.what();
  }
  return "opened";
}

TEST(RunDirectory, CreatesTheFolderAndNamesItsFiles) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "runs" / "first";
  const RunDirectory directory(path);
  EXPECT_TRUE(std::filesystem::is_directory(path));
  EXPECT_EQ(directory.earlier_holder(), "");
  EXPECT_EQ(directory.path(), path);
  EXPECT_EQ(directory.metrics_file(), path / "metrics.jsonl");
  EXPECT_EQ(directory.tensorboard_folder(), path / "tensorboard");
}

TEST(RunDirectory, ASecondStartNamesTheHolder) {
  const testing::TemporaryFolder folder;
  const RunDirectory directory(folder.path());
  const std::string message = message_of_opening<UsageError>(folder.path());
  EXPECT_NE(message.find("the run directory " + folder.path().string() + " is in use by process " + std::to_string(::getpid()) + " on "),
            std::string::npos)
      << message;
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  EXPECT_NE(message.find(std::string(" on ") + host + " since 20"), std::string::npos) << message;
  EXPECT_NE(message.find("--run-dir"), std::string::npos) << message;
}

TEST(RunDirectory, TheLockEndsWithTheObject) {
  const testing::TemporaryFolder folder;
  std::optional<RunDirectory> first(std::in_place, folder.path());
  EXPECT_NE(message_of_opening<UsageError>(folder.path()), "opened");
  first.reset();
  EXPECT_EQ(message_of_opening<UsageError>(folder.path()), "opened");
}

TEST(RunDirectory, TheLockEndsWithTheProcessAndTheNextHolderIsNamed) {
  const testing::TemporaryFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    new RunDirectory(folder.path());  // no destructor runs, as in a killed process
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_NE(read_file(folder.path() / ".lock").find("process " + std::to_string(child) + " on "), std::string::npos);
  std::optional<RunDirectory> directory(std::in_place, folder.path());
  const std::string content = read_file(folder.path() / ".lock");
  EXPECT_EQ(content.find("process " + std::to_string(::getpid()) + " on "), 0U) << content;
  EXPECT_EQ(directory->earlier_holder().find("process " + std::to_string(child) + " on "), 0U) << directory->earlier_holder();
  // In order.
  directory.reset();
  EXPECT_EQ(RunDirectory(folder.path()).earlier_holder(), "");
}

TEST(RunDirectory, ErrorNamesAFolderThatCannotBeCreated) {
  const testing::TemporaryFolder folder;
  write_text(folder.path() / "file", "");
  const auto path = folder.path() / "file" / "run";
  EXPECT_EQ(message_of_opening<Error>(path),
            "cannot use the run directory " + path.string() + ": Not a directory; choose another with --run-dir");
}

// As in a container whose user does not own the mounted folder.
TEST(RunDirectory, AFolderOfAnotherUserIsNamedWithTheRemedy) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const testing::TemporaryFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  const auto path = folder.path().string();
  const pid_t child = fork();
  if (child == 0) {
    if (setegid(1234) != 0 || seteuid(1234) != 0) _exit(2);
    const auto message = message_of_opening<Error>(folder.path() / "runs" / "first");
    std::cerr << message << "\n";
    _exit(message == "cannot use the run directory " + path + "/runs/first: Permission denied: " + path +
                         " belongs to user 0, and this process is user 1234 (chown -R 1234 " + path +
                         " gives it to this user; a container runs as its owner with --user 0:0); choose another with --run-dir"
              ? 0
              : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(RunDirectory, ErrorNamesAFolderThatCannotBeWritten) {
  const testing::TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / ".lock");
  EXPECT_EQ(message_of_opening<Error>(folder.path()),
            "cannot use the run directory " + folder.path().string() + ": .lock: Is a directory; choose another with --run-dir");
}

TEST(RunDirectory, RecognisesAnEarlierRun) {
  const testing::TemporaryFolder folder;
  const RunDirectory directory(folder.path());
  EXPECT_EQ(directory.earlier_run(), RunDirectory::EarlierRun::kNone);
  write_text(directory.config_file(), "experiment: x\n");
  EXPECT_EQ(directory.earlier_run(), RunDirectory::EarlierRun::kNone);
  write_text(directory.metrics_file(), "");
  EXPECT_EQ(directory.earlier_run(), RunDirectory::EarlierRun::kUnfinished);
  write_text(directory.summary_file(), R"({"reason": "stopped"})");
  EXPECT_EQ(directory.earlier_run(), RunDirectory::EarlierRun::kUnfinished);
  write_text(directory.summary_file(), R"({"reason": "done"})");
  EXPECT_EQ(directory.earlier_run(), RunDirectory::EarlierRun::kFinished);
}

TEST(RunDirectory, ADamagedSummaryMeansAnUnfinishedRun) {
  const testing::TemporaryFolder folder;
  const RunDirectory directory(folder.path());
  for (const char* text : {"", R"({"reason": "do)", R"("done")", R"({"reason": 1})", R"({"step": 5})"}) {
    write_text(directory.summary_file(), text);
    EXPECT_EQ(directory.earlier_run(), RunDirectory::EarlierRun::kUnfinished) << text;
  }
}

}  // namespace
}  // namespace trainer::run
