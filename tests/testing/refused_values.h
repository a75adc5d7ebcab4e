#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/keys/key.h"

namespace trainer::testing {

// Values that a key must refuse, as YAML: of the wrong type, out of range, and empty or unprintable text.
inline std::vector<std::string> refused_values(const Key& key) {
  const auto& limits = key.limits;
  std::vector<std::string> values;
  if (std::isfinite(limits.min)) values.push_back(fmt::format("{}", limits.min_excluded ? limits.min : limits.min - 1));
  // Twice a large maximum, because adding 1 to it may change nothing.
  const auto above = limits.max_excluded ? limits.max : limits.max + std::max(1.0, std::abs(limits.max));
  if (std::isfinite(limits.max)) values.push_back(fmt::format("{}", above));
  if (!limits.may_be_empty) values.emplace_back("\"\"");
  if (key.type.find("text") != std::string::npos) values.emplace_back("\"a\\x1b\"");
  if (key.type.find("list of") != std::string::npos) {
    for (auto& value : values) value = '[' + value + ']';
  }
  values.emplace_back("{no_such_key: 1}");
  return values;
}

}  // namespace trainer::testing
