#pragma once
// Text for messages, text from outside made safe for a terminal, numbers, UTF-8, JSON and CSV.

#include <charconv>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace trainer {

std::string format_duration(std::chrono::duration<double> duration);  // "8.3s", "3m12s", "2h05m"
std::string format_bytes(uint64_t bytes);                             // "512 B", "1.2 GiB"
// Converts only ASCII letters.
std::string lower_case(std::string_view text);
// Adds a fraction to a number with an exponent, as in "1.0e-05", because YAML 1.1 (PyYAML) reads "1e-05" as text.
std::string portable_number(std::string text);
// All of `text` as a number; empty if it is not one, is out of range, or has other characters.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}
std::string join(std::span<const std::string> parts, std::string_view separator);

// The candidate that `text` was most likely meant to be: one that is a few edits away, or the initials of the words of `text` ("lr" for
// "learning_rate"); empty if there is none.
std::string nearest_name(std::string_view text, std::span<const std::string> candidates);

// "1 epoch", "0 epochs", "3 epochs". `plural` is needed for a noun whose plural has more than an additional s ("class", "classes").
template <std::integral Number>
std::string counted(Number number, std::string_view noun, std::string_view plural = {}) {
  auto text = std::to_string(number);
  text += ' ';
  text += number == 1 || plural.empty() ? noun : plural;
  if (number != 1 && plural.empty()) text += 's';
  return text;
}

// Text from outside, made safe for a terminal, which would execute control characters: each byte of one and of invalid UTF-8 is written as
// an escape such as "\x1b"; tabs and line breaks stay.
std::string printable(std::string_view text);
// The same for a name in a table or a message of one line: tabs and line breaks are escaped too ("\x0a").
std::string printable_line(std::string_view text);
// For a message: in quotes, on one line, shortened, and with only printable ASCII characters.
std::string in_quotes(std::string_view text);

struct Utf8Character {
  size_t length = 0;  // in bytes; 0: the text does not begin with a valid character
  char32_t code_point = 0;
};

// `text` must not be empty.
Utf8Character first_character(std::string_view text);
// Whether `code_point` is a control character of ASCII or of Latin-1 (U+0080 to U+009F).
bool is_control(char32_t code_point);
bool is_utf8(std::string_view text);
// Windows programs write a byte order mark at the beginning of text files.
std::string_view without_byte_order_mark(std::string_view text);

// More than any file of a run directory has. nlohmann/json copies and prints values recursively, so a hostile file could overflow the
// stack.
constexpr int kMostJsonLevels = 100;
// The largest number of arrays and objects around any value of the text.
int count_json_levels(std::string_view text);

// A line of comma-separated values with its newline. Cells are quoted as in RFC 4180; control characters are escaped.
std::string csv_line(const std::vector<std::string>& cells);

}  // namespace trainer
