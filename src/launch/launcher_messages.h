#pragma once
// Messages from the launcher to its processes about how other processes end, stop or continue: lines of JSON on a pipe.

#include <cstdint>
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

}  // namespace trainer::launch
