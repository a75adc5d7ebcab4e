#include <gtest/gtest.h>
#include <signal.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <future>
#include <mutex>

#include "base/exit_status.h"
#include "base/file.h"
#include "base/signal.h"
#include "distributed/supervision/watches.h"

namespace trainer::supervision {
namespace {

using namespace std::chrono_literals;
using distributed::Activity;
using distributed::Phase;

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

constexpr WatchLimits kLimits{.stop = 8s, .slow_file = 20s, .hang = 2s};

// "stopped on request in start-up (75)"; "nothing" if the process goes on.
std::string judged(const MainThreadState& thread, const WatchLimits& limits = kLimits) {
  const auto verdict = judge(limits, thread);
  return verdict ? verdict->reason + " (" + std::to_string(static_cast<int>(verdict->exit_code)) + ")" : "nothing";
}

TEST(MainThreadWatch, AStopRequestEndsAStartUpThatDoesNotReact) {
  MainThreadState thread{.activity = {.phase = Phase::kStartUp}, .since_stop = 7999ms};
  EXPECT_EQ(judged(thread), "nothing");
  thread.since_stop = 8s;
  EXPECT_EQ(judged(thread), "stopped on request in start-up (75)");
  thread.activity.file = "reading a.bin";
  EXPECT_EQ(judged(thread), "stopped on request in start-up, reading a.bin (75)");
}

TEST(MainThreadWatch, TheSecondRequestEndsItAtOnce) {
  EXPECT_EQ(judged({.activity = {.phase = Phase::kStartUp}, .since_stop = 1s, .is_stop_repeated = true}),
            "stopped on request in start-up (75)");
}

TEST(MainThreadWatch, TrainingEndsItselfAfterAStopRequestUnlessAFileBlocksIt) {
  MainThreadState thread{.activity = {.phase = Phase::kValidation}, .since_stop = 1h};
  EXPECT_EQ(judged(thread), "nothing");
  thread.activity.file = "reading a.bin";
  thread.with_file = 1s;
  EXPECT_EQ(judged(thread), "nothing");
  thread.with_file = 9s;
  EXPECT_EQ(judged(thread), "stopped on request in validation, reading a.bin (75)");
}

TEST(MainThreadWatch, AFileThatTakesTooLongEndsIt) {
  MainThreadState thread{.activity = {.phase = Phase::kStartUp, .file = "reading a.bin"}, .with_file = 2s};
  EXPECT_EQ(judged(thread), "nothing");
  thread.with_file = 3s;
  EXPECT_EQ(judged(thread), "no progress for 3.0s in start-up, reading a.bin (4)");
  EXPECT_EQ(judged(thread, {.stop = 8s, .slow_file = 20s, .hang = 0s}), "nothing");
}

// Runs in a process of its own, because it starts a thread.
TEST(MainThreadWatchDeathTest, EndsTheProcessOfABlockedThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto be_blocked = [] {
    const auto activity = std::make_shared<Activity>();
    const MainThreadWatch watch(activity, {.stop = 1ms, .slow_file = 1h, .hang = 0ms}, make_quiet_logger(),
                                [](const WatchVerdict& verdict) {
                                  fprintf(stderr, "%s\n", verdict.reason.c_str());
                                  end_process(verdict.exit_code);
                                });
    const FileAccess access("reading", "a.bin");
    install_stop_handlers();
    raise(SIGTERM);
    while (true) pause();
  };
  EXPECT_EXIT(be_blocked(), ::testing::ExitedWithCode(75), "^stopped on request in start-up, reading a.bin\n$");
}

TEST(MainThreadWatch, AFileThatTakesLongIsNamed) {
  const auto sink = std::make_shared<FirstLine>();
  const FileAccess access("reading", "a.bin");
  const MainThreadWatch watch(std::make_shared<Activity>(), {.stop = 1h, .slow_file = 1ms, .hang = 0ms}, std::make_shared<Logger>("", sink),
                              [](const WatchVerdict&) {});
  auto line = sink->text.get_future();
  ASSERT_EQ(line.wait_for(20s), std::future_status::ready);
  EXPECT_TRUE(line.get().starts_with("reading a.bin has taken 0."));
}

}  // namespace
}  // namespace trainer::supervision
