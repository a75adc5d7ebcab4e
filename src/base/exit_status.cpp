#include "base/exit_status.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace trainer {

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
