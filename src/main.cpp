// Runs the command of the command line, reports its error, and returns the exit code.

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/Error.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "commands/command.h"

namespace {

// Runs before the initialisation of the libraries, which takes a large part of a second. The program unblocks the stop signals when it has
// its handlers. Calls nothing that needs an initialised library.
void block_stop_signals(int, char**, char**) {
  const auto bit = [](int signal_number) { return uint64_t{1} << (signal_number - 1); };
  const uint64_t signals = bit(SIGINT) | bit(SIGTERM) | bit(SIGUSR1) | bit(SIGHUP);
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, &signals, nullptr, sizeof signals);
}
[[gnu::used, gnu::section(".preinit_array")]] void (*const before_libraries)(int, char**, char**) = &block_stop_signals;

int report_error(const std::string& message, trainer::ExitCode exit_code) {
  // Another rank reports it.
  if (message.empty()) return static_cast<int>(exit_code);
  // The problems of a configuration are one line each and name their positions.
  const bool is_list = message.find('\n') != std::string::npos;
  std::fprintf(stderr, "%s%s\n", is_list ? "" : "error: ", trainer::printable(message).c_str());
  return static_cast<int>(exit_code);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return static_cast<int>(trainer::commands::run({argv + 1, argv + argc}));
  } catch (const CLI::CallForHelp&) {
    return static_cast<int>(trainer::ExitCode::kDone);
  } catch (const CLI::ParseError& error) {
    return report_error(error.what(), trainer::ExitCode::kUsage);
  } catch (const trainer::Error& error) {
    return report_error(error.what(), error.exit_code());
  } catch (const std::exception& error) {
    return report_error(error.what(), trainer::ExitCode::kFailure);
  }
}
