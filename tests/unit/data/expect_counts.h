#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "tests/testing/golden_image.h"

namespace trainer::data {

// Two samples of one distribution exceed this value of chi squared once in a million.
inline double largest_chi_squared(size_t num_results) {
  const auto degrees = static_cast<double>(num_results - 1);
  return degrees + 4.75 * std::sqrt(2 * degrees) + 2.0 / 3 * (4.75 * 4.75 - 1);
}

// `counts`: how often each result occurred among `num_samples`. `golden`: the counts of torchvision without rare results, as
// "RESULT:COUNT RESULT:COUNT". Expects that both are samples of one distribution.
inline void expect_counts(const std::map<std::string, int>& counts, int num_samples, const std::string& golden, const std::string& name) {
  double chi_squared = 0;
  int rest = num_samples;
  int expected_rest = num_samples;
  const auto add = [&](int count, int expected) {
    if (count + expected > 0) chi_squared += std::pow(count - expected, 2) / (count + expected);
  };
  const auto results = testing::split(golden, ' ');
  for (const auto& result : results) {
    const auto colon = result.find(':');
    const auto found = counts.find(result.substr(0, colon));
    const int count = found == counts.end() ? 0 : found->second;
    const int expected = std::stoi(result.substr(colon + 1));
    add(count, expected);
    rest -= count;
    expected_rest -= expected;
  }
  add(rest, expected_rest);
  EXPECT_LT(chi_squared, largest_chi_squared(results.size() + 1)) << name;
}

}  // namespace trainer::data
