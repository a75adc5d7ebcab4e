#pragma once
// Functions shared by the sinks that write JSON.

#include <nlohmann/json.hpp>
#include <string>

#include "reporting/events.h"

namespace trainer::reporting {

using Json = nlohmann::ordered_json;

inline void add_metrics(Json& object, const Metrics& metrics, const char* prefix = "") {
  for (const auto& metric : metrics) object[prefix + metric.info.name] = metric.value;
}

// The metrics, num_samples, and the metrics with averaged parameters.
inline void add_scores(Json& object, const ValidationEvent& event) {
  add_metrics(object, event.metrics);
  object["num_samples"] = event.num_samples;
  add_metrics(object, event.ema_metrics, "ema_");
}

// `indent` -1: on one line. Numbers have enough digits to restore the same double. The text is always valid JSON: a number that is not
// finite becomes null, and bytes that are not UTF-8 (of a path in a message) become the replacement character.
inline std::string to_text(const Json& object, int indent = -1) { return object.dump(indent, ' ', false, Json::error_handler_t::replace); }

}  // namespace trainer::reporting
