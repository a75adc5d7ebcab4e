#include "reporting/values.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "base/text.h"

namespace trainer::reporting {
namespace {

// Whether four decimals show enough of it.
bool is_readable(double value) {
  const double size = std::abs(value);
  return value == 0 || (size >= 1e-3 && size < 1e6) || !std::isfinite(value);
}

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

std::string number_of_width(double value, size_t width) {
  std::string text;
  for (int digits = 4; digits >= 0; --digits) {
    text = is_readable(value) ? fmt::format("{:.{}f}", value, digits) : fmt::format("{:.{}e}", value, digits);
    if (text.size() <= width) break;
  }
  return text;
}

}  // namespace trainer::reporting
