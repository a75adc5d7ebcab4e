#pragma once

#include <string>
#include <vector>

#include "trainer/keys.h"

namespace trainer::data {

struct Range {
  double least = 0;
  double greatest = 0;

  bool operator==(const Range&) const = default;
};

// Refuses `key` unless `values` are [least, greatest]. It must be in the table, and `values` must outlive it.
void require_range(KeyTable& keys, const std::string& key, const std::vector<double>& values);
// The same, but one number that is not negative is allowed too.
void require_number_or_range(KeyTable& keys, const std::string& key, const std::vector<double>& values);

}  // namespace trainer::data
