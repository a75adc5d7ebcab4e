#include "world/variable_reader.h"

#include <fmt/format.h>

#include <charconv>

#include "trainer/error.h"

namespace trainer::world {
namespace {

// The number that is all of `text`; empty if it is not one.
template <class Number>
std::optional<Number> parse(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

}  // namespace

Setting to_number(std::string text, std::string_view value, int least, int most) {
  const auto number = parse<int>(value);
  if (!number || *number < least || *number > most) {
    throw UsageError(text + (most == kNoLimit ? fmt::format(": expected a whole number of at least {}", least)
                                              : fmt::format(": expected a whole number from {} to {}", least, most)));
  }
  return {*number, std::move(text)};
}

std::optional<std::string> VariableReader::text(std::string_view name) const {
  auto value = environment_(std::string(name));
  return value && !value->empty() ? value : std::nullopt;
}

std::optional<Setting> VariableReader::number(std::string_view name, int least, int most) const {
  const auto value = text(name);
  return value ? std::optional(to_number(show(name), *value, least, most)) : std::nullopt;
}

std::optional<uint64_t> VariableReader::unsigned_number(std::string_view name) const { return parse<uint64_t>(text(name).value_or("")); }

std::string VariableReader::show(std::string_view name) const { return fmt::format("{}={}", name, text(name).value_or("")); }

}  // namespace trainer::world
