#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "data/transforms/transform.h"
#include "trainer/transform.h"

namespace trainer::data {

void Normalize::describe(KeyTable& keys) {
  keys.add("mean", mean, {.doc = "One for each channel, of pixel values from 0 to 1.", .required = true});
  keys.add("std", std, {.min = 0, .min_excluded = true, .doc = "One for each channel.", .required = true});
  const auto warn_above_one = [&keys](const char* key, const std::vector<double>& values) {
    keys.warn(key, [&values]() -> std::string {
      if (std::ranges::none_of(values, [](double value) { return value > 1; })) return "";
      return fmt::format("[{}] cannot be that of pixel values from 0 to 1; divide values for 0 to 255 by 255", fmt::join(values, ", "));
    });
  };
  warn_above_one("mean", mean);
  warn_above_one("std", std);
}

void add_normalize(TransformRegistry& registry) {
  registry.add<Normalize>(
      "normalize", "Subtracts a mean from each channel and divides by a standard deviation. Only random_erasing and cutout may follow.",
      [](const auto& normalize) { return normalize; });
}

}  // namespace trainer::data
