#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
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

uint8_t byte_at(std::string_view text, size_t position) { return static_cast<uint8_t>(text[position]); }

// Escapes the bytes of characters that change a terminal's state or direction of writing, except those in `kept`.
std::string escaped(std::string_view text, std::string_view kept) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const auto [length, code_point] = first_character(text);
    const auto character = text.substr(0, std::max<size_t>(length, 1));
    const bool changes_direction = (code_point >= 0x202a && code_point <= 0x202e) || (code_point >= 0x2066 && code_point <= 0x2069);
    if (length > 0 && !changes_direction && (!is_control(code_point) || kept.find(character) != kept.npos)) {
      result += character;
    } else {
      for (size_t i = 0; i < character.size(); ++i) fmt::format_to(std::back_inserter(result), "\\x{:02x}", byte_at(character, i));
    }
    text.remove_prefix(character.size());
  }
  return result;
}

std::string csv_cell(const std::string& value) {
  const auto text = printable_line(value);
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char byte : text) quoted += byte == '"' ? "\"\"" : std::string(1, byte);
  return quoted + '"';
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
    // A name is not suggested if nearly every letter differs.
    const size_t distance = edit_distance(text, candidate);
    if (distance < best_distance && distance < std::max(text.size(), candidate.size()) - 1) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string portable_number(std::string text) {
  const auto exponent = text.find('e');
  if (parse_number<double>(text) && exponent != text.npos && text.find('.') == text.npos) text.insert(exponent, ".0");
  return text;
}

std::string printable(std::string_view text) { return escaped(text, "\n\t"); }
std::string printable_line(std::string_view text) { return escaped(text, ""); }

std::string in_quotes(std::string_view text) {
  constexpr size_t kMaxBytes = 80;
  std::string shown = "\"";
  for (const char character : text.substr(0, kMaxBytes)) {
    const bool is_plain = character >= ' ' && character <= '~' && character != '"' && character != '\\';
    shown += is_plain ? std::string(1, character) : fmt::format("\\x{:02x}", static_cast<unsigned char>(character));
  }
  return shown + (text.size() > kMaxBytes ? "...\"" : "\"");
}

Utf8Character first_character(std::string_view text) {
  struct Form {
    uint8_t mask;     // selects the bits of the first byte that encode the length
    uint8_t bits;     // the value of these bits
    uint32_t lowest;  // the first code point that needs this length
  };
  static constexpr Form kForms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
  const auto* form =
      std::ranges::find_if(kForms, [&](const Form& candidate) { return (byte_at(text, 0) & candidate.mask) == candidate.bits; });
  if (form == std::end(kForms)) return {};
  const auto length = static_cast<size_t>(form - kForms) + 1;
  if (text.size() < length) return {};
  uint32_t code_point = byte_at(text, 0) & static_cast<uint8_t>(~form->mask);
  for (size_t i = 1; i < length; ++i) {
    if ((byte_at(text, i) & 0xc0) != 0x80) return {};
    code_point = (code_point << 6) | (byte_at(text, i) & 0x3f);
  }
  const bool is_surrogate = code_point >= 0xd800 && code_point <= 0xdfff;
  if (code_point < form->lowest || code_point > 0x10ffff || is_surrogate) return {};
  return {length, code_point};
}

bool is_control(char32_t code_point) { return code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0); }

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto length = first_character(text).length;
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

int count_json_levels(std::string_view text) {
  int most = 0;
  int level = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') ++i;
    if (in_string) continue;
    if (c == '[' || c == '{') most = std::max(most, ++level);
    if (c == ']' || c == '}') --level;
  }
  return most;
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) line += (i == 0 ? "" : ",") + csv_cell(cells[i]);
  return line + '\n';
}

}  // namespace trainer
