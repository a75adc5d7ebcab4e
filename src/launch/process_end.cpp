#include "launch/process_end.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <string_view>

#include "base/exit_status.h"
#include "launch/launcher_messages.h"
#include "trainer/error.h"

namespace trainer::launch {

int exit_code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

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

std::string reported_cause(const std::deque<std::string>& lines) {
  constexpr std::string_view kLevel = "error: ";
  const auto reports = [](const std::string& line) { return line.ends_with(kThisRankExits); };
  const auto line = std::find_if(lines.rbegin(), lines.rend(), reports);
  if (line == lines.rend()) return "";
  const auto level = line->find(kLevel);
  const auto begin = level == std::string::npos ? 0 : level + kLevel.size();
  return line->substr(begin, line->size() - kThisRankExits.size() - begin);
}

}  // namespace trainer::launch
