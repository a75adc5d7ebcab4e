#include "launch/launcher_messages.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <utility>

#include "base/file.h"

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

}  // namespace trainer::launch
