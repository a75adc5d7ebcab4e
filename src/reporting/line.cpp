#include "reporting/line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace trainer::reporting {
namespace {

constexpr std::string_view kSeparator = "  ";

}  // namespace

std::string to_line(const Fields& fields) {
  std::string line;
  for (const auto& field : fields) {
    if (!line.empty()) line += kSeparator;
    line += field.text;
  }
  return line;
}

Fields fitted(Fields fields, size_t width) {
  while (to_line(fields).size() > width) {
    // Of equal ones the last: the search goes backwards.
    const auto least = std::min_element(fields.rbegin(), fields.rend(),
                                        [](const Field& one, const Field& other) { return one.importance < other.importance; });
    if (least->importance == Field::kAlways) break;
    fields.erase(std::next(least).base());
  }
  return fields;
}

std::string wrapped(const Fields& fields, size_t width) {
  std::string lines;
  size_t column = 0;
  for (const auto& field : fields) {
    if (column > 0 && column + kSeparator.size() + field.text.size() > width) {
      lines += '\n';
      column = 0;
    }
    if (!lines.empty()) {
      lines += kSeparator;
      column += kSeparator.size();
    }
    lines += field.text;
    column += field.text.size();
  }
  return lines;
}

std::optional<size_t> line_width(std::FILE* stream) {
  const int descriptor = ::fileno(stream);
  // A stream in memory has no descriptor.
  if (descriptor < 0 || ::isatty(descriptor) == 0) return std::nullopt;
  winsize size{};
  const bool is_known = ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return (is_known ? size.ws_col : 80) - 1U;
}

}  // namespace trainer::reporting
