#include "launch/notices.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <sstream>
#include <stdexcept>

namespace trainer::launch {
namespace {

constexpr std::array<const char*, 3> kWords = {"ended", "stopped", "continued"};

}  // namespace

std::string format_notice(const Notice& notice) {
  return fmt::format("{} {} {} {}\n", kWords[static_cast<size_t>(notice.kind)], notice.rank, notice.process, notice.detail);
}

Notice parse_notice(const std::string& line) {
  std::istringstream stream(line);
  std::string word;
  Notice notice;
  if (!(stream >> word >> notice.rank >> notice.process)) throw std::invalid_argument(line);
  for (size_t kind = 0; kind < kWords.size(); ++kind) {
    if (word != kWords[kind]) continue;
    notice.kind = static_cast<Notice::Kind>(kind);
    std::getline(stream >> std::ws, notice.detail);
    return notice;
  }
  throw std::invalid_argument(line);
}

NoticeReader::NoticeReader(int descriptor, std::function<void(const Notice&)> hear)
    : wake_up_(eventfd(0, EFD_CLOEXEC)), thread_([this, descriptor, hear = std::move(hear)] { read_all(descriptor, hear); }) {}

NoticeReader::~NoticeReader() {
  eventfd_write(wake_up_, 1);
  thread_.join();
  close(wake_up_);
}

void NoticeReader::read_all(int descriptor, const std::function<void(const Notice&)>& hear) const {
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
      hear(parse_notice(rest.substr(0, end)));
      rest.erase(0, end + 1);
    }
  }
}

}  // namespace trainer::launch
