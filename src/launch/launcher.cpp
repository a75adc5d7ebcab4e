#include "launch/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/crash.h"
#include "base/file.h"
#include "launch/child_process.h"
#include "launch/launcher_messages.h"
#include "launch/world/rank_env.h"
#include "trainer/error.h"

namespace trainer::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kStopped = static_cast<int>(ExitCode::kStopped);
constexpr int kPeer = static_cast<int>(ExitCode::kPeer);

// Both ends are close-on-exec, so that a child inherits only the ends that it is given.
std::pair<Descriptor, Descriptor> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw Error("cannot create a pipe: " + std::generic_category().message(errno) + "; raise the limit on open files (ulimit -n)");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// The exit code that a shell would report: 128 + n when signal n killed the process. `status`: from waitpid.
int exit_code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

// Adds the last lines of the output, unless the process has already printed the reason.
std::string describe_failure(int rank, pid_t process, int status, const std::deque<std::string>& last_lines) {
  auto text = fmt::format("rank {} (process {}) {}", rank, process, describe_end(status));
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) text += "; unless someone killed it, the system was out of memory (see dmesg)";
  // A process with wrong input or a lost peer has already printed the reason.
  const auto code = static_cast<ExitCode>(exit_code_of(status));
  if (last_lines.empty() || code == ExitCode::kUsage || code == ExitCode::kData || code == ExitCode::kPeer) return text;
  text += "; its last lines:";
  for (const auto& line : last_lines) text += "\n  " + line;
  return text;
}

// Which rank has failed according to the last of these lines that ends with kThisRankExits; empty if there is none.
std::string reported_cause(const std::deque<std::string>& lines) {
  constexpr std::string_view kLevel = "error: ";
  const auto reports = [](const std::string& line) { return line.ends_with(kThisRankExits); };
  const auto line = std::find_if(lines.rbegin(), lines.rend(), reports);
  if (line == lines.rend()) return "";
  const auto level = line->find(kLevel);
  const auto begin = level == std::string::npos ? 0 : level + kLevel.size();
  return line->substr(begin, line->size() - kThisRankExits.size() - begin);
}

class Launcher {
 public:
  Launcher(const TimeLimits& limits, Logger& logger) : limits_(limits), logger_(logger) {}
  ~Launcher() {
    send(SIGKILL);
    for (const auto& child : children_) {
      if (child.is_running) waitpid(child.process, nullptr, 0);
    }
  }

  Outcome run(const Processes& processes) {
    for (size_t i = 0; i < processes.environments.size(); ++i) start(processes, i);
    while (std::ranges::any_of(children_, &Child::is_running)) {
      wait_for_event();
      for (auto& child : children_) child.output.forward();
      while (const auto signal = signals_.next()) {
        if (*signal == SIGCHLD) {
          reap();
        } else {
          request_stop(*signal);
        }
      }
      if (is_ending_ && deadline_ && only_stopped_run()) {
        kill_all("is suspended");
      } else if (deadline_ && Clock::now() >= *deadline_) {
        pass_deadline();
      }
    }
    if (victim_ != nullptr && exit_code_ == kPeer) log_cause();
    return {exit_code_, first_request_.has_value()};
  }

 private:
  struct Child {
    int rank;
    pid_t process;
    Descriptor messages;  // the write end
    Output output;
    bool is_running = false;
    bool is_stopped = false;
    bool was_killed_while_stopped = false;
    int status = 0;  // from waitpid
  };

  void start(const Processes& processes, size_t number) {
    const int rank = processes.first_rank + static_cast<int>(number);
    ChildProcess child{.program = processes.program,
                       .arguments = processes.arguments,
                       .environment = processes.environments[number],
                       .signal_mask = signals_.mask_before(),
                       .kept_descriptors = number == 0 ? processes.first_keeps : std::vector<int>()};
    auto [messages_out, messages_in] = make_pipe();
    fcntl(messages_in.number(), F_SETFL, O_NONBLOCK);
    child.environment.push_back(fmt::format("{}={}", world::kLauncherMessagesVariable, messages_out.number()));
    child.kept_descriptors.push_back(messages_out.number());
    // On a terminal, rank 0 gets no pipe, because it draws its progress bar only if its stderr is the terminal.
    Descriptor stderr_out, stderr_in;
    if (rank != 0 || isatty(STDERR_FILENO) == 0) {
      std::tie(stderr_out, stderr_in) = make_pipe();
      fcntl(stderr_out.number(), F_SETFL, O_NONBLOCK);
    }
    child.stderr_descriptor = stderr_in.number();
    Output output(std::move(stderr_out), rank == 0 ? "" : fmt::format("rank {}: ", rank));
    const pid_t process = start_process(child);
    children_.push_back({rank, process, std::move(messages_in), std::move(output), true});
  }

  void wait_for_event() {
    std::vector<pollfd> wanted = {{signals_.descriptor(), POLLIN, 0}};
    for (const auto& child : children_) {
      if (child.output.descriptor() >= 0) wanted.push_back({child.output.descriptor(), POLLIN, 0});
    }
    int timeout_ms = -1;
    if (deadline_) {
      const auto remaining = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now()).count();
      timeout_ms = static_cast<int>(std::clamp<int64_t>(remaining, 0, std::numeric_limits<int>::max()));
    }
    poll(wanted.data(), wanted.size(), timeout_ms);
  }

  // Sends the signal to the running processes and the processes that they have started.
  void send(int signal) {
    for (const auto& child : children_) {
      if (child.is_running) kill(-child.process, signal);
    }
  }

  void send_to_others(const Child& about, const LauncherMessage& message) {
    const auto line = format_message(message);
    for (const auto& child : children_) {
      if (child.is_running && child.rank != about.rank) [[maybe_unused]]
        const auto written = write(child.messages.number(), line.data(), line.size());
    }
  }

  void reap() {
    std::vector<const Child*> ended;
    for (auto& child : children_) {
      int status = 0;
      while (child.is_running && waitpid(child.process, &status, WNOHANG | WUNTRACED | WCONTINUED) == child.process) {
        if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
          child.is_stopped = WIFSTOPPED(status);
          send_to_others(
              child, {WIFSTOPPED(status) ? LauncherMessage::Kind::kStopped : LauncherMessage::Kind::kContinued, child.rank, child.process});
          continue;
        }
        child.is_running = false;
        child.output.finish();
        child.status = status;
        ended.push_back(&child);
      }
    }
    for (const auto* child : ended) note_end(*child);
  }

  void note_end(const Child& child) {
    const int status = child.status;
    const int code = exit_code_of(status);
    if (code == 0) return;
    if (code == kStopped) {
      if (exit_code_ != 0) return;
      exit_code_ = kStopped;
      deadline_ = Clock::now() + limits_.after_stop;
      return;
    }
    const bool is_by_launcher = is_terminated_ && WIFSIGNALED(status) && (WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGKILL);
    const bool is_first = exit_code_ == 0 || exit_code_ == kStopped || (exit_code_ == kPeer && code != kPeer);
    if (is_by_launcher || !is_first) return;
    exit_code_ = code;
    if (code == kPeer) {
      // Logged at the end, unless another failure is found to be the cause.
      victim_ = &child;
    } else {
      log_failure(child);
      if (!is_ending_) send_to_others(child, {LauncherMessage::Kind::kEnded, child.rank, child.process, describe_end(status)});
    }
    if (!is_ending_) {
      is_ending_ = true;
      deadline_ = Clock::now() + limits_.after_failure;
    }
  }

  void log_failure(const Child& child) {
    logger_.error("{}", describe_failure(child.rank, child.process, child.status, child.output.last_lines()));
  }

  // Logs the cause if the exit code is 4 (a peer was lost): the failure that the ranks have reported, else a rank that was killed while it
  // was suspended, else the first rank that ended with code 4.
  void log_cause() {
    for (const auto& child : children_) {
      const auto cause = exit_code_of(child.status) == kPeer ? reported_cause(child.output.last_lines()) : "";
      if (!cause.empty()) return logger_.error("{}", cause);
    }
    const auto stopped = std::ranges::find_if(children_, &Child::was_killed_while_stopped);
    if (stopped == children_.end()) return log_failure(*victim_);
    logger_.error("rank {} (process {}) was suspended by a signal and did not continue", stopped->rank, stopped->process);
  }

  void pass_deadline() {
    if (!is_ending_) {
      for (const auto& child : children_) {
        if (!child.is_running) continue;
        logger_.warn("rank {} (process {}) is still running although another rank has stopped on request; terminating it", child.rank,
                     child.process);
      }
      is_ending_ = true;
    }
    if (!is_terminated_) {
      is_terminated_ = true;
      send(SIGTERM);
      deadline_ = Clock::now() + limits_.after_sigterm;
      return;
    }
    kill_all("did not exit after SIGTERM");
  }

  // Whether all processes that have not ended are suspended; SIGTERM has no effect on them.
  bool only_stopped_run() const {
    return std::ranges::all_of(children_, [](const Child& child) { return !child.is_running || child.is_stopped; });
  }

  void kill_all(const char* reason) {
    for (auto& child : children_) {
      if (!child.is_running) continue;
      logger_.warn("rank {} (process {}) {}; killing it", child.rank, child.process, reason);
      child.was_killed_while_stopped = child.is_stopped;
    }
    is_terminated_ = true;
    deadline_.reset();
    send(SIGKILL);
  }

  void request_stop(int signal) {
    if (!first_request_) {
      first_request_ = Clock::now();
      send(signal);
      // A suspended process does not notice the request before it continues.
      send(SIGCONT);
    } else if ((signal == SIGINT || signal == SIGTERM) && Clock::now() - *first_request_ >= limits_.between_requests) {
      is_ending_ = true;
      exit_code_ = 128 + signal;
      deadline_.reset();
      send(SIGKILL);
    }
  }

  const TimeLimits& limits_;
  Logger& logger_;
  SignalQueue signals_;
  std::vector<Child> children_;  // by process number
  std::optional<Clock::time_point> first_request_;
  std::optional<Clock::time_point> deadline_;
  bool is_ending_ = false;
  bool is_terminated_ = false;
  const Child* victim_ = nullptr;  // the first process that ended with code 4
  int exit_code_ = 0;
};

}  // namespace

Outcome run(const Processes& processes, const TimeLimits& limits, Logger& logger) { return Launcher(limits, logger).run(processes); }

}  // namespace trainer::launch
