#pragma once
// Formats values for the console and as JSON.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainer/events.h"

namespace trainer::reporting {

// Four decimals, or scientific notation with `digits` decimals for values too small or too large for that.
std::string format_number(double value, int digits);
std::string format_lr(double lr);
std::string format_value(const Metric& metric);     // "0.4213", "55.21%"
std::string format_rate(double images_per_second);  // without its unit
std::string format_seconds(double seconds);
// A target or an answer of a regression: six digits, or two decimals if that is more, because targets such as times and coordinates differ
// only in their last digits.
std::string format_target(double value);

// A number in at most `width` columns (7 or more), with four decimals, or fewer if there is no room for them.
std::string number_of_width(double value, size_t width);

// Lines of the console: fields separated by two spaces and fitted to the width of a terminal.

struct Field {
  static constexpr int kAlways = std::numeric_limits<int>::max();  // never omitted
  std::string text;                                                // ASCII
  int importance = kAlways;
};
using Fields = std::vector<Field>;

std::string to_line(const Fields& fields);

// Omits the least important items (of equal ones the last) until `width_of(items)` is at most `width`, or all others are needed.
template <class Item, class WidthOf>
void omit_least_important(std::vector<Item>& items, size_t width, const WidthOf& width_of) {
  while (width_of(items) > width) {
    const auto least = std::min_element(items.rbegin(), items.rend(),
                                        [](const Item& one, const Item& other) { return one.importance < other.importance; });
    if (least->importance == Field::kAlways) return;
    items.erase(std::next(least).base());
  }
}

// While the line is longer than `width`, omits the least important field (of equal ones the last).
Fields fitted(Fields fields, size_t width);

// Lines of at most `width` columns that break between fields; all but the first are indented. A line is longer only if a single field is.
// Has no line break at the end.
std::string wrapped(const Fields& fields, size_t width);

// The number of columns to use if `stream` is a terminal, else nullopt: all but the last, because many terminals wrap when it is written;
// 79 if the width of the terminal is unknown.
std::optional<size_t> line_width(std::FILE* stream);

inline double unix_seconds() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// Functions shared by the JSON sinks and the commands with JSON results.

using Json = nlohmann::ordered_json;

inline void add_metrics(Json& object, const Metrics& metrics, const char* prefix = "") {
  for (const auto& metric : metrics) object[prefix + metric.info.name] = metric.value;
}

// Adds the metric that selects the best validation, and whether the greatest ("max") or the least value is the best. Adds nothing if it is
// not known.
template <class Event>
void add_monitor(Json& object, const Event& event) {
  if (event.monitor.empty()) return;
  object["monitor"] = event.monitor;
  object["mode"] = event.higher_is_better ? "max" : "min";
}

// Adds the metrics, num_samples, and the metrics with averaged parameters.
inline void add_scores(Json& object, const ValidationEvent& event) {
  add_metrics(object, event.metrics);
  object["num_samples"] = event.num_samples;
  add_metrics(object, event.ema_metrics, "ema_");
}

// On one line, or with `indent` spaces for each level. Numbers are read back as the same doubles. Always valid JSON: numbers that are not
// finite become null, and bytes that are not UTF-8 (as in the path of a message) become the replacement character. Safe for a terminal,
// because all control characters are escaped.
std::string to_text(const Json& value, int indent = -1);

}  // namespace trainer::reporting
