#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "base/utf8.h"

namespace trainer {
namespace {

uint8_t byte_at(std::string_view text, size_t position) { return static_cast<uint8_t>(text[position]); }

// `character`: one valid character of UTF-8.
bool is_control(std::string_view character) {
  const auto first = byte_at(character, 0);
  if (character.size() == 1) return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f;
  // U+0080 to U+009F
  return character.size() == 2 && first == 0xc2 && byte_at(character, 1) < 0xa0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const auto length = first_character(text).length;
    const auto character = text.substr(0, std::max<size_t>(length, 1));
    if (length > 0 && !is_control(character)) {
      result += character;
    } else {
      for (size_t i = 0; i < character.size(); ++i) fmt::format_to(std::back_inserter(result), "\\x{:02x}", byte_at(character, i));
    }
    text.remove_prefix(character.size());
  }
  return result;
}

std::string printable_line(std::string_view text) {
  std::string result;
  for (const char c : printable(text)) {
    if (c == '\n' || c == '\t') {
      fmt::format_to(std::back_inserter(result), "\\x{:02x}", static_cast<uint8_t>(c));
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace trainer
