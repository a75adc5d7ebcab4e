#include "distributed/supervision/supervisor.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include "base/file.h"
#include "base/signal.h"

namespace trainer::supervision {
namespace {

using namespace std::chrono_literals;
using distributed::Phase;
using Kind = launch::LauncherMessage::Kind;

class FirstLine : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::promise<std::string> text;

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (!std::exchange(has_text_, true)) text.set_value(std::string(message.payload.data(), message.payload.size()));
  }
  void flush_() override {}

 private:
  bool has_text_ = false;
};

constexpr SupervisionLimits kLimits{.stop = 8s, .slow_file = 20s, .file = 2s};

// Returns "stopped on request in start-up (75)" or a similar text; "nothing" if the process continues.
std::string shown(const std::optional<Ending>& ending) {
  return ending ? ending->text + " (" + std::to_string(static_cast<int>(ending->exit_code)) + ")" : "nothing";
}

std::string judged(const MainThreadState& thread, const SupervisionLimits& limits = kLimits) {
  return shown(judge(limits, thread, "rank 1 (process 5 on a)"));
}

TEST(Supervisor, AStopRequestEndsAStartUpThatDoesNotReact) {
  MainThreadState thread{.activity = {.phase = Phase::kStartUp}, .since_stop = 7999ms};
  EXPECT_EQ(judged(thread), "nothing");
  thread.since_stop = 8s;
  EXPECT_EQ(judged(thread), "stopped on request in start-up (75)");
  thread.activity.file = "reading a.bin";
  EXPECT_EQ(judged(thread), "stopped on request in start-up, reading a.bin (75)");
}

TEST(Supervisor, TheSecondRequestEndsItAtOnce) {
  EXPECT_EQ(judged({.activity = {.phase = Phase::kStartUp}, .since_stop = 1s, .is_stop_repeated = true}),
            "stopped on request in start-up (75)");
}

TEST(Supervisor, TrainingEndsItselfAfterAStopRequestUnlessAFileBlocksIt) {
  MainThreadState thread{.activity = {.phase = Phase::kValidation}, .since_stop = 1h};
  EXPECT_EQ(judged(thread), "nothing");
  thread.activity.file = "reading a.bin";
  thread.with_file = 1s;
  EXPECT_EQ(judged(thread), "nothing");
  thread.with_file = 9s;
  EXPECT_EQ(judged(thread), "stopped on request in validation, reading a.bin (75)");
}

TEST(Supervisor, AFileThatTakesTooLongEndsIt) {
  MainThreadState thread{.activity = {.phase = Phase::kStartUp, .file = "reading a.bin"}, .with_file = 2s};
  EXPECT_EQ(judged(thread), "nothing");
  thread.with_file = 3s;
  EXPECT_EQ(judged(thread),
            "rank 1 (process 5 on a) is stuck: no progress for 3.0s in start-up, reading a.bin; if that may take longer, raise "
            "distributed.hang_seconds; this rank exits (4)");
  EXPECT_TRUE(judge(kLimits, thread, "")->is_cause);
  EXPECT_EQ(judged(thread, {.stop = 8s, .slow_file = 20s, .file = 0s}), "nothing");
}

TEST(StartUpJudge, ARankThatEndsBeforeAllHaveMetEndsTheOthers) {
  StartUpJudge start_up;
  const auto now = Clock::now();
  EXPECT_EQ(shown(start_up.judge(1s, now)), "nothing");
  start_up.receive({.kind = Kind::kEnded, .rank = 2, .process = 7, .detail = "was killed by signal 9 (Killed)"}, now);
  start_up.receive({.kind = Kind::kEnded, .rank = 1, .process = 6, .detail = "ended with exit code 4"}, now);
  const auto ending = start_up.judge(1s, now);
  EXPECT_TRUE(ending->text.starts_with("rank 2 (process 7 on ")) << ending->text;
  EXPECT_TRUE(ending->text.ends_with(") was killed by signal 9 (Killed) in start-up; this rank exits")) << ending->text;
  EXPECT_EQ(ending->exit_code, ExitCode::kPeer);
  EXPECT_FALSE(ending->is_cause);
}

TEST(StartUpJudge, ARankMayBeStoppedForALimitedTime) {
  StartUpJudge start_up;
  const auto start = Clock::now();
  const auto receive = [&](Kind kind, int rank, Clock::duration after) { start_up.receive({.kind = kind, .rank = rank}, start + after); };
  receive(Kind::kStopped, 1, 0s);
  receive(Kind::kStopped, 2, 5s);
  receive(Kind::kContinued, 2, 6s);
  EXPECT_EQ(shown(start_up.judge(10s, start + 9s)), "nothing");
  EXPECT_TRUE(start_up.judge(10s, start + 10s)->text.starts_with("rank 1 ("));
  receive(Kind::kContinued, 1, 11s);
  EXPECT_EQ(shown(start_up.judge(10s, start + 1h)), "nothing");
  receive(Kind::kStopped, 1, 12s);
  EXPECT_EQ(shown(start_up.judge(10s, start + 21s)), "nothing");
  EXPECT_NE(shown(start_up.judge(10s, start + 22s)), "nothing");
}

// Runs in a separate process, because it starts a thread.
TEST(SupervisorDeathTest, EndsTheProcessOfABlockedThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto be_blocked = [] {
    const Supervisor supervisor({}, make_console_logger(), {.stop = 1ms, .slow_file = 1h});
    const FileAccess access("reading", "a.bin");
    install_stop_handlers();
    raise(SIGTERM);
    while (true) pause();
  };
  EXPECT_EXIT(be_blocked(), ::testing::ExitedWithCode(75), "error: stopped on request in start-up, reading a.bin\n$");
}

TEST(SupervisorDeathTest, EndsTheProcessWhoseGpuLostItsConnection) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto be_blocked = [] {
    Supervisor supervisor({}, make_console_logger());
    supervisor.lose_connection("the cable broke");
    while (true) pause();
  };
  EXPECT_EXIT(be_blocked(), ::testing::ExitedWithCode(4), "error: the cable broke\n$");
}

// After the loss of a rank, the main thread's collective fails while the supervising thread reports the failure.
TEST(Supervisor, TwoThreadsThatReportTheSameFailureLogItOnce) {
  ::testing::internal::CaptureStderr();
  {
    Supervisor supervisor({}, make_console_logger());
    std::thread other([&] { supervisor.report("rank 1 is stuck", ExitCode::kPeer); });
    supervisor.report("rank 1 is stuck", ExitCode::kPeer);
    other.join();
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "error: rank 1 is stuck\n");
}

TEST(Supervisor, AFileThatTakesLongIsNamed) {
  const auto sink = std::make_shared<FirstLine>();
  const FileAccess access("reading", "a.bin");
  const Supervisor supervisor({}, std::make_shared<Logger>("", sink), {.stop = 1h, .slow_file = 1ms});
  auto line = sink->text.get_future();
  ASSERT_EQ(line.wait_for(20s), std::future_status::ready);
  EXPECT_TRUE(line.get().starts_with("reading a.bin has taken 0."));
}

}  // namespace
}  // namespace trainer::supervision
