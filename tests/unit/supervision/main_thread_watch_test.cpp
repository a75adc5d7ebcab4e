#include "supervision/main_thread_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "base/file_access.h"
#include "base/signal.h"

namespace trainer::supervision {
namespace {

using namespace std::chrono_literals;
using distributed::Activity;
using distributed::Phase;

// Sleeps in the given phase, using a file if one is named, while the process is watched; exits with 0 if that ends.
void sleep_watched(Phase phase, const char* file, WatchLimits limits, std::initializer_list<int> signals) {
  const auto activity = std::make_shared<Activity>();
  activity->enter(phase, 7);
  const MainThreadWatch watch(activity, limits, make_console_logger(), [](const std::string& reason, ExitCode exit_code) {
    fprintf(stderr, "%s\n", reason.c_str());
    _exit(static_cast<int>(exit_code));
  });
  std::optional<FileAccess> access;
  if (file != nullptr) access.emplace("reading", file);
  install_stop_handlers();
  for (const int number : signals) {
    raise(number);
    if (signals.size() > 1) std::this_thread::sleep_for(1s);
  }
  std::this_thread::sleep_for(1s);
  _exit(0);
}

const WatchLimits kLimits{.stop = 300ms, .slow_file = 1h, .hang = 0ms};
const WatchLimits kLongLimits{.stop = 1h, .slow_file = 1h, .hang = 0ms};

// Each case runs in a process of its own, because it starts a thread.
class MainThreadWatchDeathTest : public ::testing::Test {
 protected:
  MainThreadWatchDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(MainThreadWatchDeathTest, AStopRequestEndsAStartUpThatDoesNotReact) {
  EXPECT_EXIT(sleep_watched(Phase::kStartUp, "a.bin", kLimits, {SIGTERM}), ::testing::ExitedWithCode(75),
              "^stopped on request in start-up, reading a.bin\n$");
  EXPECT_EXIT(sleep_watched(Phase::kStartUp, nullptr, kLimits, {SIGTERM}), ::testing::ExitedWithCode(75),
              "^stopped on request in start-up\n$");
}

TEST_F(MainThreadWatchDeathTest, TheSecondRequestEndsItAtOnce) {
  EXPECT_EXIT(sleep_watched(Phase::kStartUp, "a.bin", kLongLimits, {SIGTERM, SIGTERM}), ::testing::ExitedWithCode(75),
              "^stopped on request in start-up, reading a.bin\n$");
}

TEST_F(MainThreadWatchDeathTest, TrainingEndsItselfAfterAStopRequestUnlessAFileBlocksIt) {
  EXPECT_EXIT(sleep_watched(Phase::kStep, nullptr, kLimits, {SIGTERM}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(sleep_watched(Phase::kValidation, "a.bin", kLimits, {SIGTERM}), ::testing::ExitedWithCode(75),
              "^stopped on request in validation, reading a.bin\n$");
}

TEST_F(MainThreadWatchDeathTest, AFileThatTakesLongIsNamed) {
  EXPECT_EXIT(sleep_watched(Phase::kStartUp, "a.bin", {.stop = 1h, .slow_file = 300ms, .hang = 0ms}, {}), ::testing::ExitedWithCode(0),
              "^warning: reading a.bin has taken 0.[0-9]s so far; does its file system answer\\?\n$");
  EXPECT_EXIT(sleep_watched(Phase::kStartUp, "a.bin", {.stop = 1h, .slow_file = 1h, .hang = 300ms}, {}), ::testing::ExitedWithCode(4),
              "^no progress for 0.[0-9]s in start-up, reading a.bin\n$");
}

}  // namespace
}  // namespace trainer::supervision
