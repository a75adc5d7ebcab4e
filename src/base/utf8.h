#pragma once
// Text in UTF-8, as files and names from outside should hold it.

#include <cstddef>
#include <string_view>

namespace trainer {

struct Utf8Character {
  size_t length = 0;  // in bytes; 0: the text does not begin with a valid character
  char32_t code_point = 0;
};

// `text` must not be empty.
Utf8Character first_character(std::string_view text);
// Of ASCII or of Latin-1 (U+0080 to U+009F).
bool is_control(char32_t code_point);
bool is_utf8(std::string_view text);
// Programs of Windows put one at the beginning of text files.
std::string_view without_byte_order_mark(std::string_view text);

}  // namespace trainer
