#pragma once
// Messages from the launcher to its processes about how other processes end, stop or continue: lines of JSON on a pipe.

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

namespace trainer::launch {

struct LauncherMessage {
  enum class Kind { kEnded, kStopped, kContinued };
  Kind kind = Kind::kEnded;
  int rank = 0;
  int64_t process = 0;
  std::string detail = {};  // of kEnded: "was killed by signal 9 (Killed)"
};

// The end of the line in which a rank reports, before it exits, which rank has failed. The launcher repeats the line without this end.
inline constexpr std::string_view kThisRankExits = "; this rank exits";

// One line, with its newline.
std::string format_message(const LauncherMessage& message);

// Until the result is destroyed, calls `receive` on that thread with each message that the launcher sends on `descriptor`.
std::jthread read_messages(int descriptor, std::function<void(const LauncherMessage&)> receive);

// The exit code that a shell would report: 128 + n when signal n killed the process. `status`: from waitpid.
int exit_code_of(int status);

// Describes for the log how a process has ended. Adds the last lines of its output, unless the process has already printed the reason.
std::string describe_failure(int rank, pid_t process, int status, const std::deque<std::string>& last_lines);

// Which rank has failed according to the last of these lines that ends with kThisRankExits; empty if there is none.
std::string reported_cause(const std::deque<std::string>& lines);

}  // namespace trainer::launch
