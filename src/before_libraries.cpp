// What must happen before the libraries are initialised, which takes a large part of a second. Calls nothing that needs an initialised
// library, and so no function of the C library but syscall().

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace {

// The program unblocks them when it has its handlers.
void block_stop_signals() {
  const auto bit = [](int signal_number) { return uint64_t{1} << (signal_number - 1); };
  const uint64_t signals = bit(SIGINT) | bit(SIGTERM) | bit(SIGUSR1) | bit(SIGHUP);
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, &signals, nullptr, sizeof signals);
}

// These run before a sanitizer is ready.
#define TRAINER_UNCHECKED gnu::no_sanitize("address", "thread", "undefined")

[[TRAINER_UNCHECKED]] bool begins_with(const char* text, const char* begin) {
  while (*begin != '\0' && *text == *begin) ++text, ++begin;
  return *begin == '\0';
}

// LibTorch's threads wait for each other by looking at a variable again and again, by default for milliseconds. If another process uses one
// of the cores, the threads that wait keep the one that they wait for from running. The OpenMP library reads how often they look
// when it is initialised, so the program executes itself once more with this variable, unless the user has set it or OMP_WAIT_POLICY.
// docs/performance.md has the measurements behind the value.
[[TRAINER_UNCHECKED]] void limit_busy_waiting(char** argv, char** environment) {
  static char limit[] = "GOMP_SPINCOUNT=10000";
  constexpr size_t kMostVariables = 8192;
  static char* with_limit[kMostVariables + 2];
  size_t count = 0;
  for (; environment[count] != nullptr; ++count) {
    if (count == kMostVariables) return;
    if (begins_with(environment[count], "GOMP_SPINCOUNT=") || begins_with(environment[count], "OMP_WAIT_POLICY=")) return;
    with_limit[count] = environment[count];
  }
  with_limit[count] = limit;
  // Not /proc/self/exe itself, which would become the name of the process.
  static char path[4096];
  const auto size = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", path, sizeof path - 1);
  // If it fails, the program runs with the library's own limit.
  if (size > 0) syscall(SYS_execve, path, argv, with_limit);
}

void before_libraries(int, char** argv, char** environment) {
  block_stop_signals();
  limit_busy_waiting(argv, environment);
}

[[gnu::used, gnu::section(".preinit_array")]] void (*const run_before_libraries)(int, char**, char**) = &before_libraries;

}  // namespace
