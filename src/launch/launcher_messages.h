#pragma once
// What the launcher reports to the processes that it has started about each other: lines on a pipe.

#include <cstdint>
#include <string>

namespace trainer::launch {

struct LauncherMessage {
  enum class Kind { kEnded, kStopped, kContinued };
  Kind kind = Kind::kEnded;
  int rank = 0;
  int64_t process = 0;
  std::string detail = {};  // of kEnded: "was killed by signal 9 (Killed)"
};

// One line, with its end.
std::string format_message(const LauncherMessage& message);
// From a line without its end. Throws std::invalid_argument.
LauncherMessage parse_message(const std::string& line);

}  // namespace trainer::launch
