#include "base/utf8.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace trainer {

Utf8Character first_character(std::string_view text) {
  struct Form {
    uint8_t mask;     // of the bits of the first byte that tell the length
    uint8_t bits;     // their value
    uint32_t lowest;  // the first code point that needs this length
  };
  static constexpr Form kForms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
  const auto byte_at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto* form = std::ranges::find_if(kForms, [&](const Form& candidate) { return (byte_at(0) & candidate.mask) == candidate.bits; });
  if (form == std::end(kForms)) return {};
  const auto length = static_cast<size_t>(form - kForms) + 1;
  if (text.size() < length) return {};
  uint32_t code_point = byte_at(0) & static_cast<uint8_t>(~form->mask);
  for (size_t i = 1; i < length; ++i) {
    if ((byte_at(i) & 0xc0) != 0x80) return {};
    code_point = (code_point << 6) | (byte_at(i) & 0x3f);
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

}  // namespace trainer
