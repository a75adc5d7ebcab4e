#include "launch/launcher.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "launch/child_process.h"
#include "launch/signal_queue.h"

namespace trainer::launch {
namespace {

using Clock = SignalQueue::Clock;

constexpr int kStopped = static_cast<int>(ExitCode::kStopped);
constexpr int kPeer = static_cast<int>(ExitCode::kPeer);

int exit_code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

class Launcher {
 public:
  Launcher(const Patience& patience, Logger& logger) : patience_(patience), logger_(logger) {}
  ~Launcher() {
    send(SIGKILL);
    for (const auto& child : running_) waitpid(child.process, nullptr, 0);
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  int run(const Processes& processes) {
    for (const auto& environment : processes.environments) {
      running_.push_back(
          {static_cast<int>(running_.size()), start_process(processes.program, processes.arguments, environment, signals_.mask_before())});
    }
    while (!running_.empty()) {
      const auto signal = signals_.next(deadline_);
      if (!signal) {
        pass_deadline();
      } else if (*signal == SIGCHLD) {
        reap();
      } else {
        request_stop(*signal);
      }
    }
    return exit_code_;
  }

 private:
  struct Child {
    int rank;
    pid_t process;
  };

  // To the processes and to what they have started.
  void send(int signal) {
    for (const auto& child : running_) kill(-child.process, signal);
  }

  void reap() {
    std::vector<std::pair<Child, int>> ended;
    std::erase_if(running_, [&ended](const Child& child) {
      int status = 0;
      if (waitpid(child.process, &status, WNOHANG) != child.process) return false;
      ended.emplace_back(child, status);
      return true;
    });
    for (const auto& [child, status] : ended) note_end(child, status);
  }

  void note_end(const Child& child, int status) {
    const int code = exit_code_of(status);
    if (code == 0) return;
    if (code == kStopped) {
      if (exit_code_ != 0) return;
      exit_code_ = kStopped;
      deadline_ = Clock::now() + patience_.with_stopping;
      return;
    }
    const bool is_ours = is_ending_ && WIFSIGNALED(status) && (WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGKILL);
    const bool is_first = exit_code_ == 0 || exit_code_ == kStopped || (exit_code_ == kPeer && code != kPeer);
    if (is_ours || !is_first) return;
    if (WIFSIGNALED(status)) {
      logger_.error("rank {} (process {}) was killed by signal {} ({})", child.rank, child.process, WTERMSIG(status),
                    strsignal(WTERMSIG(status)));
    } else {
      logger_.error("rank {} (process {}) ended with exit code {}", child.rank, child.process, code);
    }
    exit_code_ = code;
    if (!is_ending_) end_all();
  }

  void end_all() {
    is_ending_ = true;
    send(SIGTERM);
    deadline_ = Clock::now() + patience_.with_survivors;
  }

  void pass_deadline() {
    if (!is_ending_) {
      for (const auto& child : running_) {
        logger_.warn("rank {} (process {}) goes on although another rank has stopped on request, and is ended", child.rank, child.process);
      }
      end_all();
    } else {
      for (const auto& child : running_)
        logger_.warn("rank {} (process {}) does not end on SIGTERM and is killed", child.rank, child.process);
      deadline_.reset();
      send(SIGKILL);
    }
  }

  void request_stop(int signal) {
    if (!first_request_) {
      first_request_ = Clock::now();
      send(signal);
    } else if (signal == SIGINT && Clock::now() - *first_request_ >= patience_.between_interrupts) {
      is_ending_ = true;
      exit_code_ = 128 + SIGINT;
      deadline_.reset();
      send(SIGKILL);
    }
  }

  const Patience& patience_;
  Logger& logger_;
  SignalQueue signals_;
  std::vector<Child> running_;
  std::optional<Clock::time_point> first_request_;
  std::optional<Clock::time_point> deadline_;
  bool is_ending_ = false;
  int exit_code_ = 0;
};

}  // namespace

int run(const Processes& processes, const Patience& patience, Logger& logger) { return Launcher(patience, logger).run(processes); }

}  // namespace trainer::launch
