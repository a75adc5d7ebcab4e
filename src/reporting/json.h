#pragma once
// Functions that the JSON sinks and the commands with JSON results share.

#include <nlohmann/json.hpp>
#include <string>

#include "trainer/events.h"

namespace trainer::reporting {

using Json = nlohmann::ordered_json;

inline void add_metrics(Json& object, const Metrics& metrics, const char* prefix = "") {
  for (const auto& metric : metrics) object[prefix + metric.info.name] = metric.value;
}

// Which metric selects the best validation, and whether the greatest ("max") or the least value is the best. Nothing if it is not known.
template <class Event>
void add_monitor(Json& object, const Event& event) {
  if (event.monitor.empty()) return;
  object["monitor"] = event.monitor;
  object["mode"] = event.higher_is_better ? "max" : "min";
}

// The metrics, num_samples, and the metrics with averaged parameters.
inline void add_scores(Json& object, const ValidationEvent& event) {
  add_metrics(object, event.metrics);
  object["num_samples"] = event.num_samples;
  add_metrics(object, event.ema_metrics, "ema_");
}

// On one line, or with that many spaces for each level. Numbers are written so that reading them gives the same double. Always valid JSON:
// numbers that are not finite become null, and bytes that are not UTF-8 (of a path in a message) the replacement character. Harmless in a
// terminal: all control characters are escaped.
std::string to_text(const Json& value, int indent = -1);

}  // namespace trainer::reporting
