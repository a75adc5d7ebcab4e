#include "launch/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/crash.h"
#include "base/program.h"
#include "launch/world/host_resources.h"
#include "trainer/error.h"

namespace trainer::launch {
namespace {

constexpr size_t kKeptLines = 5;
// Longer lines are forwarded in pieces.
constexpr size_t kLongestLine = size_t{64} * 1024;
// The most bytes that are read from one process before the launcher handles other processes and stop requests.
constexpr size_t kReadAtOnce = size_t{64} * 1024;
// The largest capacity of a pipe, unless root has raised the limit.
constexpr size_t kMostInPipe = size_t{1} << 20;

[[noreturn]] void fail(const std::string& program, int reason) {
  auto text = std::generic_category().message(reason);
  if (reason == EMFILE) text += "; raise the limit on open files (ulimit -n)";
  if (reason == EAGAIN) text += ": " + world::describe_process_limits();
  throw Error("cannot start " + program + ": " + text);
}

// Runs in the child after fork. Calls only async-signal-safe functions, because another thread of the parent may have held a lock.
[[noreturn]] void become(const ChildProcess& child, char* const* arguments, char* const* environment, pid_t parent, int stdin_descriptor,
                         int report_descriptor) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have ended before prctl.
  if (getppid() != parent) end_process(1);
  setpgid(0, 0);
  sigprocmask(SIG_SETMASK, &child.signal_mask, nullptr);
  signal(SIGPIPE, SIG_DFL);
  bool is_ready = dup2(stdin_descriptor, STDIN_FILENO) >= 0;
  if (child.stderr_descriptor >= 0) is_ready = is_ready && dup2(child.stderr_descriptor, STDERR_FILENO) >= 0;
  for (const int descriptor : child.kept_descriptors) is_ready = is_ready && fcntl(descriptor, F_SETFD, 0) == 0;
  if (is_ready) execve(child.program.c_str(), arguments, environment);
  const int reason = errno;
  [[maybe_unused]] const auto written = write(report_descriptor, &reason, sizeof reason);
  end_process(127);
}

}  // namespace

pid_t start_process(const ChildProcess& child) {
  const auto& program = child.program;
  std::vector<std::string> all_arguments = {program};
  all_arguments.insert(all_arguments.end(), child.arguments.begin(), child.arguments.end());
  const auto argument_pointers = pointers_to(all_arguments);
  const auto environment_pointers = pointers_to(child.environment);
  const Descriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (null.number() < 0) fail(program + " with /dev/null as its input", errno);
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) fail(program, errno);
  const Descriptor report_out(report[0]);
  Descriptor report_in(report[1]);

  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process < 0) fail(program, errno);
  if (process == 0) {
    become(child, argument_pointers.data(), environment_pointers.data(), parent, null.number(), report_in.number());
  }
  report_in.close();
  // A successful execve closes the other end, so that read() returns 0.
  int reason = 0;
  ssize_t length = 0;
  do {
    length = read(report_out.number(), &reason, sizeof reason);
  } while (length < 0 && errno == EINTR);
  if (length == sizeof reason) {
    waitpid(process, nullptr, 0);
    fail(program, reason);
  }
  return process;
}

Output::Output(Descriptor pipe, std::string prefix) : pipe_(std::move(pipe)), prefix_(std::move(prefix)) {}

void Output::forward() { forward(kReadAtOnce); }

void Output::forward(size_t most_bytes) {
  std::array<char, 4096> buffer;
  for (size_t num_read = 0; descriptor() >= 0 && num_read < most_bytes;) {
    const auto length = read(descriptor(), buffer.data(), buffer.size());
    if (length < 0 && errno == EINTR) continue;
    if (length < 0 && errno == EAGAIN) return;
    if (length <= 0) return end();
    num_read += static_cast<size_t>(length);
    rest_.append(buffer.data(), static_cast<size_t>(length));
    size_t begin = 0;
    for (size_t line_end = rest_.find('\n'); line_end != std::string::npos; line_end = rest_.find('\n', begin)) {
      forward_line(rest_.substr(begin, line_end - begin));
      begin = line_end + 1;
    }
    rest_.erase(0, begin);
    if (rest_.size() > kLongestLine) forward_line(std::exchange(rest_, {}));
  }
}

void Output::finish() {
  forward(kMostInPipe);
  end();
}

void Output::end() {
  pipe_.close();
  if (!rest_.empty()) forward_line(std::exchange(rest_, {}));
}

void Output::forward_line(const std::string& line) {
  const auto text = (line.starts_with(prefix_) ? "" : prefix_) + line + '\n';
  std::string_view rest = text;
  // Failures are ignored: the program that reads this process's stderr may have exited, but the processes must continue.
  write_all(STDERR_FILENO, rest);
  last_lines_.push_back(line);
  if (last_lines_.size() > kKeptLines) last_lines_.pop_front();
}

SignalQueue::SignalQueue() : sigpipe_before_(signal(SIGPIPE, SIG_IGN)) {
  sigset_t signals;
  sigemptyset(&signals);
  // The kernel discards ignored signals instead of adding them to the queue.
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &actions_before_[i]);
    if (kSignals[i] == SIGHUP && actions_before_[i].sa_handler == SIG_IGN) continue;
    sigaddset(&signals, kSignals[i]);
    sigaction(kSignals[i], &action, nullptr);
  }
  sigprocmask(SIG_BLOCK, &signals, &mask_before_);
  queue_ = Descriptor(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (descriptor() < 0) throw Error("cannot receive signals through signalfd: " + std::generic_category().message(errno));
}

SignalQueue::~SignalQueue() {
  signal(SIGPIPE, sigpipe_before_);
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &actions_before_[i], nullptr);
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

std::optional<int> SignalQueue::next() {
  signalfd_siginfo info{};
  if (read(descriptor(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace trainer::launch
