#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace trainer {
namespace {

uint8_t byte_at(std::string_view text, size_t position) { return static_cast<uint8_t>(text[position]); }

// The number of bytes of the character at the beginning of `text`, which is not empty; 0 if they are not valid UTF-8.
size_t length_of_character(std::string_view text) {
  struct Form {
    uint8_t mask;     // of the bits of the first byte that tell the length
    uint8_t bits;     // their value
    uint32_t lowest;  // the first code point that needs this length
  };
  static constexpr Form kForms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
  const auto first = byte_at(text, 0);
  const auto* form = std::ranges::find_if(kForms, [&](const Form& candidate) { return (first & candidate.mask) == candidate.bits; });
  if (form == std::end(kForms)) return 0;
  const auto length = static_cast<size_t>(form - kForms) + 1;
  if (text.size() < length) return 0;
  uint32_t code_point = first & static_cast<uint8_t>(~form->mask);
  for (size_t i = 1; i < length; ++i) {
    if ((byte_at(text, i) & 0xc0) != 0x80) return 0;
    code_point = (code_point << 6) | (byte_at(text, i) & 0x3f);
  }
  const bool is_surrogate = code_point >= 0xd800 && code_point <= 0xdfff;
  return code_point < form->lowest || code_point > 0x10ffff || is_surrogate ? 0 : length;
}

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
    const auto length = length_of_character(text);
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

}  // namespace trainer
