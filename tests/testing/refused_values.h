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
  std::vector<std::string> values;
  if (std::isfinite(key.min)) values.push_back(fmt::format("{}", key.min_excluded ? key.min : key.min - 1));
  // Twice a large maximum, because adding 1 to it may change nothing.
  const auto above = key.max_excluded ? key.max : key.max + std::max(1.0, std::abs(key.max));
  if (std::isfinite(key.max)) values.push_back(fmt::format("{}", above));
  if (!key.may_be_empty) values.emplace_back("\"\"");
  if (key.type.find("text") != std::string::npos) values.emplace_back("\"a\\x1b\"");
  if (key.type.find("list of") != std::string::npos) {
    for (auto& value : values) value = '[' + value + ']';
  }
  values.emplace_back("{no_such_key: 1}");
  return values;
}

}  // namespace trainer::testing
