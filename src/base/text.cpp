#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

namespace trainer {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// "learning_rate" -> "lr".
std::string initials(std::string_view name) {
  std::string letters;
  bool word_start = true;
  for (const char c : name) {
    if (word_start && c != '_') letters += c;
    word_start = c == '_' || c == '-';
  }
  return letters;
}

}  // namespace

std::string format_duration(std::chrono::duration<double> duration) {
  const double seconds = duration.count();
  if (seconds < 59.95) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
}

std::string format_bytes(uint64_t bytes) {
  static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string join(std::span<const std::string> parts, std::string_view separator) { return fmt::format("{}", fmt::join(parts, separator)); }

std::string nearest_name(std::string_view text, std::span<const std::string> candidates) {
  std::string best;
  size_t best_distance = text.size() / 3 + 2;
  for (const auto& candidate : candidates) {
    if (candidate.size() > 1 && initials(text) == candidate) return candidate;
    // Not a suggestion if nearly every letter would be replaced.
    const size_t distance = edit_distance(text, candidate);
    if (distance < best_distance && distance < std::max(text.size(), candidate.size()) - 1) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string portable_number(std::string text) {
  double value = 0;
  const auto* end = text.data() + text.size();
  const bool is_number = std::from_chars(text.data(), end, value).ptr == end;
  const auto exponent = text.find('e');
  if (is_number && exponent != text.npos && text.find('.') == text.npos) text.insert(exponent, ".0");
  return text;
}

}  // namespace trainer
