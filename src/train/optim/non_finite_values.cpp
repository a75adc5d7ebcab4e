#include "train/optim/non_finite_values.h"

#include <bit>
#include <cstdint>
#include <limits>

namespace trainer::optim {
namespace {

// In an infinity or NaN all exponent bits are set. The test uses integers because every compiler vectorises that loop.
template <class Bits, class Value>
bool has_full_exponent(std::span<const Value> values) {
  constexpr auto kExponent = std::bit_cast<Bits>(std::numeric_limits<Value>::infinity());
  Bits any = 0;
  for (const Value value : values) any |= static_cast<Bits>((std::bit_cast<Bits>(value) & kExponent) == kExponent);
  return any != 0;
}

}  // namespace

bool has_non_finite(std::span<const float> values) { return has_full_exponent<uint32_t>(values); }
bool has_non_finite(std::span<const double> values) { return has_full_exponent<uint64_t>(values); }

}  // namespace trainer::optim
