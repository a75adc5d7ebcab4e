#pragma once
// Values as the console shows them.

#include <string>

#include "trainer/events.h"

namespace trainer::reporting {

// Four decimals, or scientific notation with `digits` decimals for values too small or too large for that.
std::string format_number(double value, int digits);
std::string format_lr(double lr);
std::string format_value(const Metric& metric);     // "0.4213", "55.21%"
std::string format_rate(double images_per_second);  // without its unit
std::string format_seconds(double seconds);

// A number in at most `width` columns, 7 or more: with four decimals, else with as many as there is room for.
std::string number_of_width(double value, size_t width);

}  // namespace trainer::reporting
