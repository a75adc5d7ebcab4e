#pragma once
// Reads numbers from flags and from the variables of an environment.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "world/rank_env.h"

namespace trainer::world {

// A number, and the text that set it: "RANK=4", "--rank 4".
struct Setting {
  int value;
  std::string text;
};

inline constexpr int kNoLimit = std::numeric_limits<int>::max();

// The number `value`, which `text` sets. Throws UsageError that shows `text` if it is no whole number from `least` to `most`.
Setting to_number(std::string text, std::string_view value, int least, int most = kNoLimit);

class VariableReader {
 public:
  explicit VariableReader(const Environment& environment) : environment_(environment) {}

  // A variable with an empty value counts as not set.
  std::optional<std::string> text(std::string_view name) const;
  // Throws as to_number().
  std::optional<Setting> number(std::string_view name, int least, int most = kNoLimit) const;
  // Empty as well if the variable is not a number.
  std::optional<uint64_t> unsigned_number(std::string_view name) const;
  // "RANK=4"
  std::string show(std::string_view name) const;

 private:
  const Environment& environment_;
};

}  // namespace trainer::world
