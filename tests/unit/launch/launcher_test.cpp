#include "launch/launcher.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "launch/launcher_messages.h"
#include "trainer/error.h"

namespace trainer::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::UnorderedElementsAre;

// A launcher in a separate process, whose children are shells. They have RANK set, send lines to the test with `>&9`, wait for a line
// from it with `<&8`, and wait forever with `<&7`. The log is the stderr of the launcher and the shells.
class LauncherProcess {
  // Surviving processes get SIGTERM immediately.
  static constexpr TimeLimits kLimits{.after_failure = std::chrono::milliseconds(0), .after_sigterm = std::chrono::seconds(20)};

 public:
  LauncherProcess(int num_processes, const std::string& script, const TimeLimits& limits = kLimits) {
    int report[2], hold[2], never[2], log[2];
    for (int* ends : {report, hold, never, log}) {
      if (pipe2(ends, O_CLOEXEC) != 0) throw Error("no pipe");
    }
    signal(SIGPIPE, SIG_IGN);
    process_ = fork();
    if (process_ == 0) _exit(launch(num_processes, script, limits, {never[0], hold[0], report[1], log[1]}));
    for (const int end : {report[1], hold[0], never[0], log[1]}) close(end);
    report_ = report[0];
    hold_ = hold[1];
    never_ = never[1];
    log_ = log[0];
  }
  ~LauncherProcess() {
    kill(process_, SIGKILL);
    if (!has_ended_) waitpid(process_, nullptr, 0);
    for (const int end : {report_, hold_, never_, log_}) close(end);
  }
  LauncherProcess(const LauncherProcess&) = delete;
  LauncherProcess& operator=(const LauncherProcess&) = delete;

  void send(int signal) const { kill(process_, signal); }
  // Lets one of the waiting shells continue.
  void release() const { EXPECT_EQ(write(hold_, "\n", 1), 1); }
  std::string line() const { return read_until('\n', report_); }
  // The remaining output, until the launcher and all children have ended.
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    for (auto next = line(); !next.empty(); next = line()) all.push_back(next);
    return all;
  }
  std::string log() const { return read_until('\0', log_); }
  // The exit code as a shell shows it.
  int wait() {
    int status = 0;
    waitpid(process_, &status, 0);
    has_ended_ = true;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  static std::string read_until(char end, int descriptor) {
    std::string text;
    char next = 0;
    while (read(descriptor, &next, 1) == 1 && next != end) text += next;
    return text;
  }

  // `ends`: the descriptors that become 7, 8, 9 and stderr.
  static int launch(int num_processes, const std::string& script, const TimeLimits& limits, std::array<int, 4> ends) {
    // Copies the descriptors to higher numbers first, because they may be among the target numbers.
    for (int& end : ends) end = fcntl(end, F_DUPFD_CLOEXEC, 20);
    for (int i = 0; i < 3; ++i) dup2(ends[static_cast<size_t>(i)], 7 + i);
    dup2(ends[3], STDERR_FILENO);
    Processes processes{"/bin/sh", {"-c", script}, {}};
    for (int rank = 0; rank < num_processes; ++rank) processes.environments.push_back({"RANK=" + std::to_string(rank)});
    return run(processes, limits, *make_console_logger()).exit_code;
  }

  pid_t process_;
  int report_, hold_, never_, log_;
  bool has_ended_ = false;
};

// The shell waits in `wait`, where it handles a trapped signal at once: in another blocking built-in, the trap would run only after the
// built-in returns. The process for which it waits closes its copies of the pipes.
const std::string kWaitForever = "(exec 9>&- 2>&-; read line <&7) & while kill -0 $! 2>/dev/null; do wait; done";

constexpr std::chrono::milliseconds kShort(50);
constexpr std::chrono::hours kNever(24);

TEST(Launcher, AllSucceed) {
  LauncherProcess launcher(3, "echo $RANK >&9");
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.lines(), UnorderedElementsAre("0", "1", "2"));
  EXPECT_EQ(launcher.log(), "");
}

TEST(Launcher, AChildHasItsOwnEnvironmentAndProcessGroupAndEmptyInput) {
  LauncherProcess launcher(1, R"sh(
    read -r pid name state parent group rest </proc/$$/stat
    [ /proc/$$/fd/0 -ef /dev/null ]; echo "stdin $?" >&9
    echo "group $((group == $$))" >&9
    echo "inherited ${HOME-none}" >&9)sh");
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.lines(), ElementsAre("stdin 0", "group 1", "inherited none"));
}

TEST(Launcher, FirstFailureEndsTheOthersAndTheirChildrenAndIsReturned) {
  LauncherProcess launcher(3, "if [ $RANK = 1 ]; then read line <&8; exit 3; fi; (trap 'echo ended >&9; exit' TERM; echo ready >&9; " +
                                  kWaitForever + ") & wait");
  EXPECT_EQ(launcher.line(), "ready");
  EXPECT_EQ(launcher.line(), "ready");
  launcher.release();
  EXPECT_EQ(launcher.wait(), 3);
  EXPECT_THAT(launcher.lines(), ElementsAre("ended", "ended"));
  EXPECT_THAT(launcher.log(), MatchesRegex("error: rank 1 \\(process [0-9]+\\) ended with exit code 3\n"));
}

TEST(Launcher, DeathByASignal) {
  LauncherProcess launcher(2, "[ $RANK = 0 ] && kill -9 $$; read line <&7");
  EXPECT_EQ(launcher.wait(), 128 + SIGKILL);
  EXPECT_THAT(launcher.log(),
              MatchesRegex("error: rank 0 \\(process [0-9]+\\) was killed by signal 9 \\(Killed\\); unless someone killed it, "
                           "the system was out of memory \\(see dmesg\\)\n"));
}

TEST(Launcher, SurvivorsThatDoNotEndAreKilled) {
  TimeLimits limits;
  limits.after_failure = limits.after_sigterm = kShort;
  LauncherProcess launcher(2, R"(
    if [ $RANK = 1 ]; then read line <&8; exit 3; fi
    trap '' TERM; echo ready >&9; read line <&7)",
                           limits);
  EXPECT_EQ(launcher.line(), "ready");
  launcher.release();
  EXPECT_EQ(launcher.wait(), 3);
  EXPECT_THAT(launcher.log(), MatchesRegex("error: rank 1 .* ended with exit code 3\n"
                                           "warning: rank 0 \\(process [0-9]+\\) did not exit after SIGTERM; killing it\n"));
}

// Exit code 4 means that another rank was lost. That rank may end later than the one that detected it.
TEST(Launcher, TheCauseIsReturnedInsteadOfARankThatLostAPeer) {
  const auto run_with = [](const std::string& on_term) {
    auto launcher = std::make_unique<LauncherProcess>(
        2, "if [ $RANK = 0 ]; then read line <&8; exit 4; fi; trap '" + on_term + "' TERM; echo ready >&9; " + kWaitForever);
    EXPECT_EQ(launcher->line(), "ready");
    launcher->release();
    return launcher;
  };
  auto launcher = run_with("exit 6");
  EXPECT_EQ(launcher->wait(), 6);
  EXPECT_THAT(launcher->log(), MatchesRegex("error: rank 1 .* ended with exit code 6\n"));
  EXPECT_EQ(run_with("exit 75")->wait(), 4);
  EXPECT_EQ(run_with("exit 4")->wait(), 4);
  EXPECT_EQ(run_with("trap - TERM; kill -TERM $$")->wait(), 4);
}

// A death by a signal counts as the cause of the failure, unless the launcher itself has sent a signal before.
TEST(Launcher, AVictimThatEndsFirstGivesWayToADeathByASignal) {
  LauncherProcess launcher(2, "[ $RANK = 0 ] && exit 4; read line <&8; kill -9 $$", {.after_failure = std::chrono::seconds(20)});
  launcher.release();
  EXPECT_EQ(launcher.wait(), 128 + SIGKILL);
}

TEST(Launcher, TheLastLinesOfAFailureAreRepeated) {
  LauncherProcess launcher(2, "if [ $RANK = 1 ]; then seq 1 7 >&2; printf 'no end' >&2; exit 6; fi; echo of rank 0 >&2; " + kWaitForever);
  EXPECT_EQ(launcher.wait(), 6);
  const auto log = launcher.log();
  EXPECT_THAT(log, HasSubstr("rank 1: 1\n"));
  EXPECT_THAT(log, HasSubstr("rank 1: no end\n"));
  EXPECT_THAT(log, HasSubstr("ended with exit code 6; its last lines:\n  4\n  5\n  6\n  7\n  no end\n"));
}

// The launcher notices the failure while it reads the output, and does not store the output.
TEST(Launcher, ARankThatPrintsWithoutPauseAndLineBreaksDoesNotHideTheFailureOfAnother) {
  LauncherProcess launcher(2, R"sh(
    if [ $RANK = 1 ]; then read line <&8; exit 6; fi
    echo ready >&9; exec 9>&-; (echo; exec tr '\0' x </dev/zero) >&2)sh");
  EXPECT_EQ(launcher.line(), "ready");
  auto log = std::async([&launcher] { return launcher.log(); });
  launcher.release();
  EXPECT_EQ(launcher.wait(), 6);
  EXPECT_THAT(log.get(), HasSubstr("rank 1 (process "));
}

TEST(Launcher, TheOthersLearnHowARankHasEnded) {
  LauncherProcess launcher(3, R"sh(
    if [ $RANK = 1 ]; then read line <&8; exit 3; fi
    read -r message </proc/self/fd/$TRAINER_LAUNCHER_MESSAGES
    echo "$message" >&9)sh",
                           {.after_failure = std::chrono::seconds(20)});
  launcher.release();
  EXPECT_EQ(launcher.wait(), 3);
  const auto of_rank1 = AllOf(HasSubstr("\"detail\":\"ended with exit code 3\""), HasSubstr("\"rank\":1"));
  EXPECT_THAT(launcher.lines(), ElementsAre(of_rank1, of_rank1));
}

TEST(Launcher, TheOthersLearnThatARankIsStoppedAndContinued) {
  LauncherProcess launcher(2, R"sh(
    if [ $RANK = 1 ]; then echo $$ >&9; read line <&8; exit 0; fi
    exec 3</proc/self/fd/$TRAINER_LAUNCHER_MESSAGES
    for i in 1 2; do read -r message <&3; echo "$message" >&9; done)sh");
  const auto process = std::stoi(launcher.line());
  kill(process, SIGSTOP);
  EXPECT_EQ(launcher.line() + '\n', format_message({LauncherMessage::Kind::kStopped, 1, process}));
  kill(process, SIGCONT);
  EXPECT_EQ(launcher.line() + '\n', format_message({LauncherMessage::Kind::kContinued, 1, process}));
  launcher.release();
  EXPECT_EQ(launcher.wait(), 0);
}

TEST(Launcher, AStoppedRankIsNotWaitedForWhenTheOthersHaveEnded) {
  LauncherProcess launcher(2, "if [ $RANK = 0 ]; then kill -STOP $$; fi; read line <&8; exit 4", {.after_failure = kNever});
  launcher.release();
  EXPECT_EQ(launcher.wait(), 4);
  EXPECT_THAT(launcher.log(), MatchesRegex("warning: rank 0 .* is suspended; killing it\n"
                                           "error: rank 0 \\(process [0-9]+\\) was suspended by a signal and did not continue\n"));
}

TEST(Launcher, TheLastLineNamesTheRankThatTheOthersReport) {
  LauncherProcess launcher(2, R"(
    echo "rank $RANK: error: rank 5 (process 7 on there) has not answered; this rank exits" >&2
    echo "the same command resumes" >&2
    exit 4)");
  EXPECT_EQ(launcher.wait(), 4);
  EXPECT_TRUE(launcher.log().ends_with("\nerror: rank 5 (process 7 on there) has not answered\n"));
}

TEST(Launcher, StoppedOnRequestWaitsForTheOthers) {
  LauncherProcess launcher(2, R"(
    if [ $RANK = 0 ]; then echo $$ >&9; exit 75; fi
    trap 'exit 9' TERM; read line <&8; exit 0)");
  const auto stopped = std::stoi(launcher.line());
  while (kill(stopped, 0) == 0) sched_yield();
  launcher.release();
  EXPECT_EQ(launcher.wait(), 75);
  EXPECT_EQ(launcher.log(), "");
}

TEST(Launcher, FailureAfterAStopIsAFailure) {
  LauncherProcess launcher(2, "[ $RANK = 0 ] && exit 75; read line <&8; exit 3");
  launcher.release();
  EXPECT_EQ(launcher.wait(), 3);
  EXPECT_THAT(launcher.log(), HasSubstr("ended with exit code 3"));
}

TEST(Launcher, AfterAStopTheOthersDoNotGoOnForever) {
  TimeLimits limits;
  limits.after_stop = kShort;
  LauncherProcess launcher(2, "[ $RANK = 0 ] && exit 75; read line <&7", limits);
  EXPECT_EQ(launcher.wait(), 75);
  EXPECT_THAT(launcher.log(),
              MatchesRegex("warning: rank 1 .* is still running although another rank has stopped on request; terminating it\n"));
}

TEST(Launcher, AStopRequestIsSentToAllOnce) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    TimeLimits limits;
    limits.between_requests = kNever;
    LauncherProcess launcher(2, R"(
      trap '' TERM INT HUP USR1  # for the reader
      (exec 9>&- 2>&-; read line <&8) &
      trap 'echo stop.$RANK >&9' TERM INT HUP USR1
      echo ready >&9
      until wait $!; do :; done
      exit 75)",
                             limits);
    EXPECT_EQ(launcher.line(), "ready");
    EXPECT_EQ(launcher.line(), "ready");
    launcher.send(signal);
    EXPECT_THAT(std::vector({launcher.line(), launcher.line()}), UnorderedElementsAre("stop.0", "stop.1"));
    launcher.send(signal);
    launcher.release();
    launcher.release();
    EXPECT_EQ(launcher.wait(), 75);
    EXPECT_THAT(launcher.lines(), ElementsAre());
  }
}

TEST(Launcher, ASecondRequestByInterruptOrTerminationKills) {
  for (const auto& [first, second] : {std::pair(SIGINT, SIGINT), std::pair(SIGTERM, SIGTERM), std::pair(SIGUSR1, SIGTERM)}) {
    TimeLimits limits;
    limits.between_requests = std::chrono::milliseconds(0);
    // The process that the shell waits for ignores the requests, which the launcher sends to it too.
    LauncherProcess launcher(2, R"(
      trap '' TERM INT USR1
      (exec 9>&- 2>&-; read line <&7) &
      trap 'echo stop >&9' TERM INT USR1
      echo ready >&9
      until wait $!; do :; done)",
                             limits);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(launcher.line(), "ready");
    launcher.send(first);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(launcher.line(), "stop");
    launcher.send(second);
    EXPECT_EQ(launcher.wait(), 128 + second);
    EXPECT_THAT(launcher.lines(), ElementsAre());
    EXPECT_EQ(launcher.log(), "");
  }
}

TEST(Launcher, AStopRequestContinuesASuspendedRank) {
  LauncherProcess launcher(2, "trap 'exit 75' TERM; echo $$ >&9; " + kWaitForever);
  const auto process = std::stoi(launcher.line());
  EXPECT_NE(launcher.line(), "");
  kill(process, SIGSTOP);
  launcher.send(SIGTERM);
  EXPECT_EQ(launcher.wait(), 75);
  EXPECT_EQ(launcher.log(), "");
}

TEST(Launcher, ChildrenEndWhenTheLauncherIsKilled) {
  LauncherProcess launcher(2, "trap '' TERM INT HUP; echo ready >&9; read line <&7");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(launcher.line(), "ready");
  launcher.send(SIGKILL);
  EXPECT_EQ(launcher.wait(), 128 + SIGKILL);
  // lines() returns only when no child has the pipe open.
  EXPECT_THAT(launcher.lines(), ElementsAre());
}

TEST(Launcher, AProgramThatCannotBeStarted) {
  const auto error_of = [](const Processes& processes) -> std::string {
    try {
      run(processes, {}, *make_quiet_logger());
    } catch (const Error& error) {
      return error.what();
    }
    return "started";
  };
  EXPECT_EQ(error_of({"/nonexistent/trainer", {}, {{}}}), "cannot start /nonexistent/trainer: No such file or directory");
  // The first process is running when the second cannot be started, because Linux limits a string to 128 KiB.
  EXPECT_EQ(error_of({"/bin/sh", {"-c", "kill -STOP $$"}, {{}, {"X=" + std::string(1 << 18, 'x')}}}),
            "cannot start /bin/sh: Argument list too long");
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  sigset_t mask;
  sigprocmask(SIG_BLOCK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGINT) + sigismember(&mask, SIGTERM) + sigismember(&mask, SIGCHLD), 0);
}

}  // namespace
}  // namespace trainer::launch
