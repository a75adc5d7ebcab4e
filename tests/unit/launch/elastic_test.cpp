#include "launch/elastic.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "launch/plan.h"

namespace trainer::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// A shell that reports "attempt.place of its node.number of nodes" in a line on descriptor 9 and waits for SIGTERM.
const std::string kRank = "trap 'exit 75' TERM; echo $ATTEMPT.$PLACE.$NODES >&9; (exec 9>&-; read line <&7) & wait $!; wait $!";
// The same, but the second attempt succeeds.
const std::string kSecondSucceeds = "[ $ATTEMPT = 1 ] && { echo $ATTEMPT.$PLACE.$NODES >&9; exit 0; }; " + kRank;

// Launchers of nodes of this host, each in a process. Each starts one shell.
class Launchers {
 public:
  explicit Launchers(std::string script) : script_(std::move(script)), port_(FreePort().number()) {
    for (int* ends : {report_, never_, log_}) EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  }
  ~Launchers() {
    for (const auto process : processes_) {
      kill(process, SIGKILL);
      waitpid(process, nullptr, 0);
    }
    for (const int* ends : {report_, never_, log_}) {
      close(ends[0]);
      if (ends != report_ && ends != log_) close(ends[1]);
    }
  }
  Launchers(const Launchers&) = delete;
  Launchers& operator=(const Launchers&) = delete;

  MembershipLimits limits{.min_nodes = 2,
                          .max_nodes = 3,
                          .max_restarts = 1,
                          .last_call_timeout = std::chrono::seconds(0),
                          .join_timeout = std::chrono::seconds(30)};
  std::string master_addr = "127.0.0.1";

  pid_t start(int node) {
    const auto process = fork();
    if (process == 0) _exit(launch(node));
    processes_.push_back(process);
    return process;
  }
  // The lines of the shells, of which there are `count`, in any order.
  std::vector<std::string> lines(int count) const {
    std::vector<std::string> lines(static_cast<size_t>(count));
    for (auto& line : lines) {
      for (char next = 0; read(report_[0], &next, 1) == 1 && next != '\n';) line += next;
    }
    return lines;
  }
  // The exit code of a launcher as a shell shows it.
  int wait(pid_t process) {
    int status = 0;
    waitpid(process, &status, 0);
    processes_.remove(process);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  // After all have ended.
  std::string log() {
    close(std::exchange(log_[1], -1));
    std::string text;
    for (char next = 0; read(log_[0], &next, 1) == 1;) text += next;
    return text;
  }

 private:
  int launch(int node) const {
    const int wanted[] = {never_[0], report_[1], log_[1]};
    // Out of the way of those numbers first.
    int copies[3];
    for (int i = 0; i < 3; ++i) copies[i] = fcntl(wanted[i], F_DUPFD_CLOEXEC, 20);
    dup2(copies[0], 7);
    dup2(copies[1], 9);
    dup2(copies[2], STDERR_FILENO);
    const ElasticOptions options{.limits = limits, .keep_alive = {}, .node = node, .master_addr = master_addr, .master_port = port_};
    const auto make = [&](const Order& start, int listen_descriptor) {
      EXPECT_EQ(listen_descriptor >= 0, node == 0);
      return Processes{.program = "/bin/sh",
                       .arguments = {"-c", script_},
                       .environments = {{fmt::format("ATTEMPT={}", start.attempt), fmt::format("PLACE={}", start.group_rank),
                                         fmt::format("NODES={}", start.num_nodes)}},
                       .first_rank = start.group_rank};
    };
    try {
      return run_elastic(options, make, *make_console_logger()).exit_code;
    } catch (const Error& error) {
      make_console_logger()->error("{}", error.what());
      return static_cast<int>(error.exit_code());
    }
  }

  const std::string script_;
  const int port_;
  int report_[2], never_[2], log_[2];
  std::list<pid_t> processes_;
};

TEST(Elastic, GoesOnWithoutALauncherThatIsLost) {
  Launchers launchers(kSecondSucceeds);
  // Long enough for the third to join the first attempt, also on a machine that is busy with other tests.
  launchers.limits.last_call_timeout = std::chrono::seconds(5);
  const auto first = launchers.start(0), lost = launchers.start(1), other = launchers.start(2);
  ASSERT_THAT(launchers.lines(3), UnorderedElementsAre("0.0.3", "0.1.3", "0.2.3"));
  kill(lost, SIGKILL);
  EXPECT_THAT(launchers.lines(2), UnorderedElementsAre("1.0.2", "1.1.2"));
  EXPECT_EQ(launchers.wait(first), 0);
  EXPECT_EQ(launchers.wait(other), 0);
  EXPECT_THAT(launchers.log(), HasSubstr(" is lost: restart 1 of 1\n"));
}

TEST(Elastic, StopsForALauncherThatJoins) {
  Launchers launchers(kSecondSucceeds);
  const auto first = launchers.start(0), other = launchers.start(2);
  EXPECT_THAT(launchers.lines(2), UnorderedElementsAre("0.0.2", "0.1.2"));
  const auto joins = launchers.start(1);
  EXPECT_THAT(launchers.lines(3), UnorderedElementsAre("1.0.3", "1.1.3", "1.2.3"));
  for (const auto process : {first, joins, other}) EXPECT_EQ(launchers.wait(process), 0);
}

TEST(Elastic, AFailureIsRestartedByAllAndThenReturned) {
  Launchers launchers("echo $ATTEMPT.$PLACE >&9; [ $PLACE = 1 ] && exit 6; sleep 1; exit 4");
  launchers.limits.max_nodes = 2;
  const auto first = launchers.start(0), other = launchers.start(1);
  EXPECT_EQ(launchers.wait(other), 6);
  EXPECT_EQ(launchers.wait(first), 4);
  EXPECT_THAT(launchers.lines(4), UnorderedElementsAre("0.0", "0.1", "1.0", "1.1"));
  EXPECT_THAT(launchers.log(), HasSubstr("have ended with exit code 6; no restart is left"));
}

TEST(Elastic, AStopRequestToOneLauncherStopsAll) {
  for (const int place : {0, 1}) {
    Launchers launchers("trap 'exit 75' TERM; echo $PLACE >&9; (exec 9>&-; read line <&7) & wait $!; wait $!");
    launchers.limits.max_nodes = 2;
    const pid_t processes[] = {launchers.start(0), launchers.start(1)};
    launchers.lines(2);
    // Ranks tell each other of a request; shells do not.
    kill(processes[place], SIGTERM);
    EXPECT_EQ(launchers.wait(processes[place]), 75);
    kill(processes[1 - place], SIGTERM);
    EXPECT_EQ(launchers.wait(processes[1 - place]), 75);
    EXPECT_THAT(launchers.log(), HasSubstr("was asked to stop"));
  }
}

TEST(Elastic, AStopRequestWhileWaiting) {
  Launchers launchers(kRank);
  launchers.limits.min_nodes = 3;
  const auto first = launchers.start(0), other = launchers.start(1);
  // A request before it has joined, which takes milliseconds on an idle machine, would stop only this launcher.
  sleep(3);
  kill(other, SIGTERM);
  EXPECT_EQ(launchers.wait(other), 75);
  EXPECT_EQ(launchers.wait(first), 75);
}

TEST(Elastic, ALauncherThatDoesNotFitEndsAlone) {
  Launchers launchers(kSecondSucceeds);
  const auto first = launchers.start(0), other = launchers.start(1);
  launchers.lines(2);
  launchers.limits.max_nodes = 4;
  EXPECT_EQ(launchers.wait(launchers.start(2)), 2);
  for (const auto process : {first, other}) kill(process, SIGTERM);
  for (const auto process : {first, other}) EXPECT_EQ(launchers.wait(process), 75);
  EXPECT_THAT(launchers.log(), HasSubstr("error: --nnodes is 2:4 on "));
}

TEST(Elastic, WithoutNode0) {
  Launchers launchers(kRank);
  launchers.limits.join_timeout = std::chrono::seconds(1);
  EXPECT_EQ(launchers.wait(launchers.start(1)), 4);
  const auto log = launchers.log();
  EXPECT_THAT(log, HasSubstr("waiting for the launcher of node 0 at 127.0.0.1:"));
  EXPECT_THAT(log, HasSubstr("error: no launcher of node 0 at 127.0.0.1:"));
  EXPECT_THAT(log, HasSubstr("within 1.0s (Connection refused); start one there with --node-rank 0"));
}

TEST(Elastic, ANameThatCannotBeResolved) {
  for (const int node : {0, 1}) {
    Launchers launchers(kRank);
    launchers.limits.join_timeout = std::chrono::seconds(1);
    launchers.master_addr = "no-such-host.invalid";
    EXPECT_EQ(launchers.wait(launchers.start(node)), 4);
    const auto log = launchers.log();
    EXPECT_THAT(log, HasSubstr("waiting for the launcher of node 0 at no-such-host.invalid:"));
    EXPECT_THAT(log, HasSubstr("(the name no-such-host.invalid cannot be resolved: "));
  }
}

TEST(Elastic, TheLaunchersReturnAfterNode0HasReturned) {
  Launchers launchers(kSecondSucceeds);
  launchers.limits.max_nodes = 2;
  const auto lost = launchers.start(0), other = launchers.start(1);
  launchers.lines(2);
  kill(lost, SIGKILL);
  EXPECT_EQ(launchers.wait(lost), 128 + SIGKILL);
  launchers.start(0);
  EXPECT_THAT(launchers.lines(2), UnorderedElementsAre("0.0.2", "0.1.2")) << "the first attempt of the new meeting";
  kill(other, SIGTERM);
  EXPECT_EQ(launchers.wait(other), 75);
}

}  // namespace
}  // namespace trainer::launch
