#pragma once
// The events of metrics.jsonl.

#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "report/history/run_record.h"

namespace trainer::history {

// Adds the content of the file to `run`. The state is the one with which the run ended, or kFailed if the file has no event "end" for its
// last session. With Detail::kOverview, of consecutive training events only the last is used, and of the others only their times. A missing
// file changes nothing.
void read_metrics_file(const std::filesystem::path& file, Detail detail, RunRecord& run);

// The functions below read JSON of a run directory, to which other programs may have written: values may be missing or have another type.

// Returns a discarded value if the text is not JSON. Throws a DataError that names `file`, the source of the text, if the text is nested so
// deeply that copying or printing the value, both recursive, could overflow the stack.
Json parse_json(std::string_view text, const std::filesystem::path& file);

// Null if there is no such member.
inline const Json& member_of(const Json& object, const char* name) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

inline std::optional<double> number_of(const Json& object, const char* name) {
  const auto& value = member_of(object, name);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

inline std::optional<int64_t> integer_of(const Json& object, const char* name) {
  const auto value = number_of(object, name);
  return value && std::abs(*value) < 9e15 ? std::optional(static_cast<int64_t>(*value)) : std::nullopt;
}

inline std::string text_of(const Json& object, const char* name) {
  const auto& value = member_of(object, name);
  return value.is_string() ? value.get<std::string>() : "";
}

}  // namespace trainer::history
