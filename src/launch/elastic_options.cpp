#include "launch/elastic_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/error.h"

namespace trainer::launch {
namespace {

constexpr int kMostNodes = 100'000;
// The kernel takes up to 32,767 seconds and 127 probes (tcp(7)).
constexpr int kMostSeconds = 32'000;
constexpr int kMostProbes = 127;

std::optional<int> parse_number(std::string_view text, int least, int most) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_valid = error == std::errc{} && end == text.data() + text.size() && number >= least && number <= most;
  return is_valid ? std::optional(number) : std::nullopt;
}

}  // namespace

NumNodes parse_num_nodes(const std::string& text) {
  const auto colon = text.find(':');
  const auto min = parse_number(std::string_view(text).substr(0, colon), 1, kMostNodes);
  const auto max = colon == std::string::npos ? min : parse_number(std::string_view(text).substr(colon + 1), 1, kMostNodes);
  if (min && max && *min <= *max) return {*min, *max, colon != std::string::npos};
  throw UsageError(fmt::format("--nnodes {}: expected a number from 1 to {}, or MIN:MAX such as 2:4", text, kMostNodes));
}

RendezvousTimes parse_rendezvous_times(const std::string& text) {
  RendezvousTimes times;
  std::istringstream stream(text);
  for (std::string entry; std::getline(stream, entry, ',');) {
    const auto equals = std::min(entry.find('='), entry.size());
    const auto name = entry.substr(0, equals);
    const auto number = [&](int least, int most) {
      const auto value = parse_number(std::string_view(entry).substr(std::min(equals + 1, entry.size())), least, most);
      if (!value) throw UsageError(fmt::format("--rdzv-conf {}: expected {}=NUMBER, from {} to {}", entry, name, least, most));
      return *value;
    };
    if (name == "last_call_timeout") {
      times.last_call_timeout = std::chrono::seconds(number(0, kMostSeconds));
    } else if (name == "join_timeout") {
      times.join_timeout = std::chrono::seconds(number(1, kMostSeconds));
    } else if (name == "keep_alive_interval") {
      times.keep_alive.interval = std::chrono::seconds(number(1, kMostSeconds));
    } else if (name == "keep_alive_max_attempt") {
      times.keep_alive.attempts = number(1, kMostProbes);
    } else {
      throw UsageError(
          fmt::format("--rdzv-conf {}: expected last_call_timeout, join_timeout, keep_alive_interval or keep_alive_max_attempt", entry));
    }
  }
  return times;
}

}  // namespace trainer::launch
