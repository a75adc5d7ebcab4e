#pragma once
// The events of metrics.jsonl.

#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "report/history/run_record.h"

namespace trainer::history {

// Adds what the file says to `run`; its state is the one with which it ended, kFailed without an end. With Detail::kOverview only the
// latest training event of a session is used, and the times of the others. A missing file changes nothing.
void read_metrics_file(const std::filesystem::path& file, Detail detail, RunRecord& run);

// JSON of a run directory, in which anybody may have written: values of objects may be missing or have another type.

// Discarded if the text is no JSON. Throws DataError that names `file`, from which the text is, if it is nested so deeply that copying or
// printing the value, which the library does by recursion, could exceed the stack.
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
