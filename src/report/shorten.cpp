#include "report/shorten.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace trainer::report {

history::Series shortened(const history::Series& series, size_t max_points) {
  const auto size = series.values.size();
  if (size <= max_points) return series;
  std::set<size_t> kept = {0, size - 1};
  const auto num_parts = std::max<size_t>(1, max_points / 2);
  for (size_t part = 0; part < num_parts; ++part) {
    const auto begin = part * size / num_parts;
    auto least = begin;
    auto greatest = begin;
    for (auto i = begin; i < (part + 1) * size / num_parts; ++i) {
      const auto value = series.values[i];
      if (std::isnan(series.values[least]) || value < series.values[least]) least = i;
      if (std::isnan(series.values[greatest]) || value > series.values[greatest]) greatest = i;
    }
    kept.insert({least, greatest});
  }
  history::Series result;
  for (const auto i : kept) {
    result.steps.push_back(series.steps[i]);
    result.values.push_back(series.values[i]);
  }
  return result;
}

}  // namespace trainer::report
