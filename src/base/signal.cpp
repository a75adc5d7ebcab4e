#include "base/signal.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <initializer_list>

#include "base/crash.h"
#include "trainer/error.h"

namespace trainer {
namespace {

// These variables are global because a signal handler cannot access other state.
std::atomic<int> requested_signal{0};
std::atomic<long> first_request_ms{0};
std::atomic<bool> is_repeated{false};
// The file that exit_on_stop() removes. While the state is kBeingRemoved, no other thread changes the path, although other threads continue
// to run.
enum class FileState { kNone, kBeingNamed, kNamed, kBeingRemoved };
std::atomic<FileState> file_state{FileState::kNone};
std::array<char, PATH_MAX> file_to_remove{};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<long>::is_always_lock_free &&
              std::atomic<FileState>::is_always_lock_free);

long now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

extern "C" void note_stop_signal(int signal_number) {
  // A second signal may arrive on another thread at the same time, so the time is set before the request.
  long never = 0;
  const long now = now_ms();
  first_request_ms.compare_exchange_strong(never, now);
  int none = 0;
  if (!requested_signal.compare_exchange_strong(none, signal_number) && now - first_request_ms >= 1000) {
    if (signal_number == SIGINT) end_process(128 + SIGINT);
    is_repeated = true;
  }
}

extern "C" void exit_on_stop(int /*signal_number*/) {
  constexpr char kMessage[] = "stopped on request\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  auto state = FileState::kNamed;
  if (file_state.compare_exchange_strong(state, FileState::kBeingRemoved)) ::unlink(file_to_remove.data());
  end_process(ExitCode::kStopped);
}

constexpr std::initializer_list<int> kStopSignals = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};

void mask_stop_signals(int how) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal_number : kStopSignals) sigaddset(&signals, signal_number);
  pthread_sigmask(how, &signals, nullptr);
}

bool is_ignored(int signal_number) {
  struct sigaction action {};
  sigaction(signal_number, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

void handle(int signal_number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal_number, &action, nullptr);
}

}  // namespace

void install_stop_handlers() {
  for (const int signal_number : kStopSignals) {
    // SIGHUP stays ignored under nohup.
    if (signal_number != SIGHUP || !is_ignored(SIGHUP)) handle(signal_number, note_stop_signal);
  }
  mask_stop_signals(SIG_UNBLOCK);
}

void exit_on_stop_signals() {
  for (const int signal_number : kStopSignals) {
    if (!is_ignored(signal_number)) handle(signal_number, exit_on_stop);
  }
  mask_stop_signals(SIG_UNBLOCK);
}

RemovedOnExit::RemovedOnExit(const std::filesystem::path& file) {
  auto state = FileState::kNone;
  const auto& path = file.native();
  if (path.size() >= file_to_remove.size() || !file_state.compare_exchange_strong(state, FileState::kBeingNamed)) return;
  path.copy(file_to_remove.data(), path.size());
  file_to_remove[path.size()] = '\0';
  file_state = FileState::kNamed;
  counts_ = true;
}

RemovedOnExit::~RemovedOnExit() {
  auto state = FileState::kNamed;
  if (counts_) file_state.compare_exchange_strong(state, FileState::kNone);
}

void block_stop_signals() { mask_stop_signals(SIG_BLOCK); }

int stop_signal() { return requested_signal; }
bool is_stop_repeated() { return is_repeated; }

std::optional<std::chrono::milliseconds> time_since_stop_signal() {
  if (requested_signal == 0) return std::nullopt;
  return std::chrono::milliseconds(now_ms() - first_request_ms);
}

void repair_inherited_state() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // The new descriptor gets this number because it is the lowest free one. Child processes need it too, so it is not close-on-exec.
    if (::open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY) == descriptor) continue;
    constexpr char kMessage[] = "error: cannot open /dev/null, which replaces a closed standard input or output\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
    end_process(ExitCode::kFailure);
  }
  ::signal(SIGXFSZ, SIG_IGN);
  struct sigaction action {};
  if (::sigaction(SIGCHLD, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) ::signal(SIGCHLD, SIG_DFL);
}

void check_working_folder() {
  std::error_code error;
  const auto folder = std::filesystem::current_path(error);
  if (!folder.empty()) return;
  throw Error(error == std::errc::no_such_file_or_directory
                  ? "the current folder has been removed; change to another folder, or cd into the path again if it has been created anew"
                  : "the current folder cannot be used: " + error.message() + "; change to another folder");
}

}  // namespace trainer
