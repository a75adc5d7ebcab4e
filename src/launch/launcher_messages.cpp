#include "launch/launcher_messages.h"

#include <fmt/format.h>

#include <array>
#include <sstream>
#include <stdexcept>

namespace trainer::launch {
namespace {

constexpr std::array<const char*, 3> kWords = {"ended", "stopped", "continued"};

}  // namespace

std::string format_message(const LauncherMessage& message) {
  return fmt::format("{} {} {} {}\n", kWords[static_cast<size_t>(message.kind)], message.rank, message.process, message.detail);
}

LauncherMessage parse_message(const std::string& line) {
  std::istringstream stream(line);
  std::string word;
  LauncherMessage message;
  if (!(stream >> word >> message.rank >> message.process)) throw std::invalid_argument(line);
  for (size_t kind = 0; kind < kWords.size(); ++kind) {
    if (word != kWords[kind]) continue;
    message.kind = static_cast<LauncherMessage::Kind>(kind);
    std::getline(stream >> std::ws, message.detail);
    return message;
  }
  throw std::invalid_argument(line);
}

}  // namespace trainer::launch
