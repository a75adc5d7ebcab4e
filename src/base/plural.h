#pragma once
// A number with the noun that it counts.

#include <concepts>
#include <string>
#include <string_view>

namespace trainer {

// "1 epoch", "0 epochs", "3 epochs". `plural`: of a noun that does not only take an s ("class", "classes").
template <std::integral Number>
std::string counted(Number number, std::string_view noun, std::string_view plural = {}) {
  auto text = std::to_string(number);
  text += ' ';
  text += number == 1 || plural.empty() ? noun : plural;
  if (number != 1 && plural.empty()) text += 's';
  return text;
}

}  // namespace trainer
