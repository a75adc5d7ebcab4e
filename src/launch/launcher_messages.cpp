#include "launch/launcher_messages.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string_view>
#include <utility>

#include "base/crash.h"
#include "base/file.h"
#include "trainer/error.h"

namespace trainer::launch {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LauncherMessage, kind, rank, process, detail)

std::string format_message(const LauncherMessage& message) { return nlohmann::json(message).dump() + '\n'; }

std::jthread read_messages(int descriptor, std::function<void(const LauncherMessage&)> receive) {
  return std::jthread([descriptor, receive = std::move(receive)](const std::stop_token& stop) {
    const Descriptor wake_up(eventfd(0, EFD_CLOEXEC));
    const std::stop_callback wake(stop, [&] { eventfd_write(wake_up.number(), 1); });
    std::string rest;
    while (!stop.stop_requested()) {
      std::array<pollfd, 2> wanted = {{{descriptor, POLLIN, 0}, {wake_up.number(), POLLIN, 0}}};
      if (poll(wanted.data(), wanted.size(), -1) < 0 || wanted[0].revents == 0) continue;
      std::array<char, 512> buffer;
      const auto length = read(descriptor, buffer.data(), buffer.size());
      if (length <= 0) return;
      rest.append(buffer.data(), static_cast<size_t>(length));
      for (size_t end = rest.find('\n'); end != std::string::npos; end = rest.find('\n')) {
        receive(nlohmann::json::parse(rest.substr(0, end)).get<LauncherMessage>());
        rest.erase(0, end + 1);
      }
    }
  });
}

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
