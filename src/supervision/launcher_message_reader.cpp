#include "supervision/launcher_message_reader.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>

namespace trainer::supervision {

LauncherMessageReader::LauncherMessageReader(int descriptor, std::function<void(const launch::LauncherMessage&)> receive)
    : wake_up_(eventfd(0, EFD_CLOEXEC)), thread_([this, descriptor, receive = std::move(receive)] { read_all(descriptor, receive); }) {}

LauncherMessageReader::~LauncherMessageReader() {
  eventfd_write(wake_up_, 1);
  thread_.join();
  close(wake_up_);
}

void LauncherMessageReader::read_all(int descriptor, const std::function<void(const launch::LauncherMessage&)>& receive) const {
  std::string rest;
  while (true) {
    std::array<pollfd, 2> wanted = {{{descriptor, POLLIN, 0}, {wake_up_, POLLIN, 0}}};
    if (poll(wanted.data(), wanted.size(), -1) < 0) continue;
    if (wanted[1].revents != 0) return;
    std::array<char, 512> buffer;
    const auto length = read(descriptor, buffer.data(), buffer.size());
    if (length <= 0) return;
    rest.append(buffer.data(), static_cast<size_t>(length));
    for (size_t end = rest.find('\n'); end != std::string::npos; end = rest.find('\n')) {
      receive(launch::parse_message(rest.substr(0, end)));
      rest.erase(0, end + 1);
    }
  }
}

}  // namespace trainer::supervision
