#include "reporting/values.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <iterator>
#include <string_view>

#include "base/text.h"

namespace trainer::reporting {
namespace {

// Whether four decimals are enough to show the value.
bool is_readable(double value) {
  const double size = std::abs(value);
  return value == 0 || (size >= 1e-3 && size < 1e6) || !std::isfinite(value);
}

constexpr std::string_view kSeparator = "  ";

}  // namespace

std::string format_number(double value, int digits) {
  return is_readable(value) ? fmt::format("{:.4f}", value) : fmt::format("{:.{}e}", value, digits);
}

std::string format_lr(double lr) { return format_number(lr, 1); }

std::string format_value(const Metric& metric) {
  return metric.info.format == MetricFormat::kPercent ? fmt::format("{:.2f}%", 100 * metric.value) : format_number(metric.value, 4);
}

std::string format_rate(double images_per_second) { return fmt::format("{:.{}f}", images_per_second, images_per_second < 10 ? 1 : 0); }

std::string format_seconds(double seconds) { return format_duration(std::chrono::duration<double>(seconds)); }

std::string format_target(double value) {
  constexpr double kSixDigits = 1e4;  // with two decimals
  constexpr double kTooLong = 1e12;
  const auto size = std::abs(value);
  return size >= kSixDigits && size < kTooLong ? fmt::format("{:.2f}", value) : fmt::format("{:.6g}", value);
}

std::string number_of_width(double value, size_t width) {
  std::string text;
  for (int digits = 4; digits >= 0; --digits) {
    text = is_readable(value) ? fmt::format("{:.{}f}", value, digits) : fmt::format("{:.{}e}", value, digits);
    if (text.size() <= width) break;
  }
  return text;
}

std::string to_line(const Fields& fields) {
  std::string line;
  for (const auto& field : fields) {
    if (!line.empty()) line += kSeparator;
    line += field.text;
  }
  return line;
}

Fields fitted(Fields fields, size_t width) {
  omit_least_important(fields, width, [](const Fields& all) { return to_line(all).size(); });
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

std::string to_text(const Json& value, int indent) {
  const auto text = value.dump(indent, ' ', false, Json::error_handler_t::replace);
  std::string result;
  result.reserve(text.size());
  // dump() escapes only the control characters below a space. A line break in `text` is always one between values.
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
