#pragma once

#include <span>

namespace trainer::optim {

// Whether an infinity or NaN is among the values.
bool has_non_finite(std::span<const float> values);
bool has_non_finite(std::span<const double> values);

}  // namespace trainer::optim
