#include "reporting/json.h"

#include <fmt/format.h>

#include <iterator>

#include "base/utf8.h"

namespace trainer::reporting {

std::string to_text(const Json& value, int indent) {
  const auto text = value.dump(indent, ' ', false, Json::error_handler_t::replace);
  std::string result;
  result.reserve(text.size());
  // dump() escapes only those below a space. Its line breaks stand between values.
  for (std::string_view rest = text; !rest.empty();) {
    const auto [length, code_point] = first_character(rest);
    if (is_control(code_point) && code_point != '\n') {
      fmt::format_to(std::back_inserter(result), "\\u{:04x}", static_cast<uint32_t>(code_point));
    } else {
      result += rest.substr(0, length);
    }
    rest.remove_prefix(length);
  }
  return result;
}

}  // namespace trainer::reporting
