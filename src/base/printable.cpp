#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "base/utf8.h"

namespace trainer {
namespace {

uint8_t byte_at(std::string_view text, size_t position) { return static_cast<uint8_t>(text[position]); }

bool is_shown(const Utf8Character& character) {
  return character.length > 0 && (!is_control(character.code_point) || character.code_point == '\n' || character.code_point == '\t');
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const auto first = first_character(text);
    const auto character = text.substr(0, std::max<size_t>(first.length, 1));
    if (is_shown(first)) {
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
