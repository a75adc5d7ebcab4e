#include "base/crash.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array kCrashSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
// A thread that receives this signal while stack_of() waits for an answer records its stack. At other times, the signal has no effect.
const int kStackSignal = SIGRTMIN + 5;
constexpr size_t kMaxFrames = 64;
constexpr size_t kLineLength = 256;

// These variables are global because a signal handler cannot access other state, and of fixed size because it must not allocate memory.
std::array<char, kLineLength> process_text{};
std::array<char, PATH_MAX> crash_file{};
std::atomic<bool> is_crashing{false};

void copy_text(std::span<char> to, const std::string& text) {
  const size_t length = std::min(text.size(), to.size() - 1);
  std::memcpy(to.data(), text.data(), length);
  to[length] = '\0';
}

void write_text(int descriptor, std::initializer_list<const char*> parts) {
  for (const char* part : parts) [[maybe_unused]] const auto written = write(descriptor, part, std::strlen(part));
}

// The name of the file that is mapped at an address, from /proc/self/maps; empty if there is none. Runs in a signal handler, so it does not
// allocate.
const char* file_mapped_at(const void* address) {
  static std::array<char, PATH_MAX + kLineLength> line;
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  const char* file = "";
  size_t length = 0;
  while (maps >= 0 && file[0] == '\0' && read(maps, &line[length], 1) == 1) {
    if (line[length] != '\n') {
      length = std::min(length + 1, line.size() - 1);
      continue;
    }
    line[length] = '\0';
    length = 0;
    char* dash = nullptr;
    const auto begin = std::strtoull(line.data(), &dash, 16);
    const auto end = std::strtoull(dash + 1, nullptr, 16);
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    const char* name = std::strchr(line.data(), '/');
    if (begin <= wanted && wanted < end && name != nullptr) file = name;
  }
  if (maps >= 0) close(maps);
  return file;
}

void write_report(int descriptor, int signal_number, const char* file, std::span<void* const> frames) {
  write_text(descriptor, {"crash: ", process_text[0] != '\0' ? process_text.data() : "trainer", ": ", sigdescr_np(signal_number)});
  if (file[0] != '\0') write_text(descriptor, {": ", file, " was shortened or cannot be read"});
  write_text(descriptor, {"\n  stack (addr2line -Cfe FILE OFFSET prints the source lines):\n"});
  backtrace_symbols_fd(frames.data(), static_cast<int>(frames.size()), descriptor);
}

extern "C" void report_crash(int signal_number, siginfo_t* info, void*) {
  if (!is_crashing.exchange(true)) {
    std::array<void*, kMaxFrames> frames;
    const auto count = static_cast<size_t>(std::max(0, backtrace(frames.data(), kMaxFrames)));
    const std::span<void* const> stack(frames.data(), count);
    // The kernel sends SIGBUS with this code when it cannot read a page of a mapped file.
    const char* lost_file = signal_number == SIGBUS && info->si_code == BUS_ADRERR ? file_mapped_at(info->si_addr) : "";
    write_report(STDERR_FILENO, signal_number, lost_file, stack);
    const int file = crash_file[0] != '\0' ? open(crash_file.data(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (file >= 0) write_report(file, signal_number, lost_file, stack);
  }
  // SA_RESETHAND has restored the default action, which ends the process.
  raise(signal_number);
}

// The stack of one thread, written by that thread's signal handler.
struct Answer {
  std::array<void*, kMaxFrames> frames{};
  std::atomic<int> num_frames{-1};
};

extern "C" void answer_with_stack(int, siginfo_t* info, void*) {
  if (info->si_code != SI_QUEUE || info->si_pid != getpid()) return;
  const int error = errno;
  auto* answer = static_cast<Answer*>(info->si_value.sival_ptr);
  answer->num_frames = backtrace(answer->frames.data(), kMaxFrames);
  errno = error;
}

std::string name_of(void* frame) {
  Dl_info info{};
  if (dladdr(frame, &info) == 0) return "?";
  const std::string_view file = info.dli_fname != nullptr ? info.dli_fname : "?";
  const auto in = " in " + std::string(file.substr(file.rfind('/') + 1));
  if (info.dli_sname == nullptr) return "?" + in;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status), std::free);
  return (status == 0 ? name.get() : info.dli_sname) + in;
}

std::string name_of_thread(long thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

// A thread that blocks the signal cannot record its stack. Threads of libraries, such as those of the CUDA driver, often block all signals.
bool blocks_stack_signal(long thread) {
  constexpr std::string_view kField = "SigBlk:";
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(kField)) return (std::stoull(line.substr(kField.size()), nullptr, 16) >> (kStackSignal - 1) & 1) != 0;
  }
  return false;
}

// `deadline` applies to all threads together; each thread gets a short time to respond even if the deadline has passed.
std::string stack_of(long thread, Clock::time_point deadline) {
  if (blocks_stack_signal(thread)) return "    no stack: this thread blocks signals\n";
  // Never freed, because a thread that responds late still writes to it.
  auto* answer = new Answer;
  siginfo_t request{};
  request.si_code = SI_QUEUE;
  request.si_pid = getpid();
  request.si_uid = getuid();
  request.si_value.sival_ptr = answer;
  if (syscall(SYS_rt_tgsigqueueinfo, getpid(), thread, kStackSignal, &request) != 0) {
    const int reason = errno;
    delete answer;
    return reason == ESRCH ? "" : fmt::format("    no stack: {}\n", std::strerror(reason));
  }
  const auto end = std::max(deadline, Clock::now() + std::chrono::milliseconds(20));
  while (answer->num_frames < 0 && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const int count = answer->num_frames;
  if (count < 0) return "    no stack: this thread does not respond\n";
  std::string text;
  // The first two frames are the handler and its caller.
  for (int i = 2; i < count; ++i) text += "    " + name_of(answer->frames[static_cast<size_t>(i)]) + '\n';
  return text;
}

}  // namespace

void install_crash_handlers() {
  // The first call of backtrace() loads a library, which a signal handler must not do.
  std::array<void*, 1> frame;
  backtrace(frame.data(), 1);
  // In this thread, the handler gets its own stack, so that it can run after a stack overflow.
  static std::array<char, 64 * 1024> handler_stack;
  const stack_t stack{.ss_sp = handler_stack.data(), .ss_flags = 0, .ss_size = handler_stack.size()};
  sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_sigaction = report_crash;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER | SA_ONSTACK | SA_SIGINFO);
  for (const int signal_number : kCrashSignals) sigaction(signal_number, &action, nullptr);
  struct sigaction ask {};
  ask.sa_sigaction = answer_with_stack;
  ask.sa_flags = SA_RESTART | SA_SIGINFO;
  sigaction(kStackSignal, &ask, nullptr);
}

void describe_process(const std::string& text) { copy_text(process_text, text); }
void set_crash_file(const std::filesystem::path& file) { copy_text(crash_file, file.string()); }

std::string stacks_of_all_threads() {
  std::vector<long> threads;
  std::error_code not_mounted;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", not_mounted))
    threads.push_back(std::stol(entry.path().filename()));
  std::ranges::sort(threads);
  std::string text;
  const auto deadline = Clock::now() + std::chrono::seconds(1);
  for (const long thread : threads) {
    text += "  thread " + std::to_string(thread) + " " + name_of_thread(thread) + '\n' + stack_of(thread, deadline);
  }
  return text;
}

std::string describe_end(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("ended with exit code {}", WEXITSTATUS(status));
  return fmt::format("was killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
}

ExitCode exit_code_of(const std::exception& error) {
  const auto* own_error = dynamic_cast<const Error*>(&error);
  return own_error != nullptr ? own_error->exit_code() : ExitCode::kFailure;
}

void end_process(int exit_code) { ::_exit(exit_code); }

}  // namespace trainer
