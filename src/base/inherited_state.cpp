#include "base/inherited_state.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/exit_status.h"
#include "trainer/error.h"

namespace trainer {

void repair_inherited_state() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // It gets this number, which is the least that is free. For child processes too, so not close-on-exec.
    if (::open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY) != descriptor) end_process(ExitCode::kFailure);
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
                  ? "the folder in which this was started has been removed; cd into it again, or into another one"
                  : "the folder in which this was started cannot be used: " + error.message());
}

}  // namespace trainer
