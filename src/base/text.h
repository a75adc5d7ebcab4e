#pragma once
// Text for people: durations, sizes, counts, and the nearest of several names; and text from outside.

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

std::string format_duration(std::chrono::duration<double> duration);  // "8.3s", "3m12s", "2h05m"
std::string format_bytes(uint64_t bytes);                             // "512 B", "1.2 GiB"
// Only letters of ASCII become small ones.
std::string lower_case(std::string_view text);
// A number with an exponent gets a fraction, "1.0e-05", without which YAML 1.1 (PyYAML) reads text; what is no number stays as it is.
std::string portable_number(std::string text);
std::string join(std::span<const std::string> parts, std::string_view separator);

// The candidate that `text` was most likely meant to be: one that is a few edits away, or the initials of the words of `text` ("lr" for
// "learning_rate"); empty if there is none.
std::string nearest_name(std::string_view text, std::span<const std::string> candidates);

// A number with the noun that it counts.

// "1 epoch", "0 epochs", "3 epochs". `plural`: of a noun that does not only take an s ("class", "classes").
template <std::integral Number>
std::string counted(Number number, std::string_view noun, std::string_view plural = {}) {
  auto text = std::to_string(number);
  text += ' ';
  text += number == 1 || plural.empty() ? noun : plural;
  if (number != 1 && plural.empty()) text += 's';
  return text;
}

// Text from outside (values of files, names of files, messages of other processes) as a terminal may receive it.

// `text` with each byte of a control character, and each byte that is not valid UTF-8, written as "\x1b"; tabs and line breaks stay. A
// terminal would execute control characters: they can move the cursor, erase lines and set the window's title.
std::string printable(std::string_view text);
// The same for a name in a table or message of one line: tabs and line breaks are written as "\x0a" too.
std::string printable_line(std::string_view text);

// Text in UTF-8, as files and names from outside should hold it.

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

// How deeply the values of a JSON text lie in each other. nlohmann/json copies and prints them by recursion, so that a hostile file could
// overflow the stack.

// No file of a run directory has more.
constexpr int kMostJsonLevels = 100;

// The most arrays and objects around a value of the text.
int count_json_levels(std::string_view text);

// A line of comma-separated values as RFC 4180, with what a terminal would execute shown instead (base/text.h).
std::string csv_line(const std::vector<std::string>& cells);

}  // namespace trainer
