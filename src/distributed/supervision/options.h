#pragma once

#include <chrono>

namespace trainer::supervision {

// How long a rank may take to answer, or for one step, unless a run chooses another time.
inline constexpr std::chrono::seconds kDefaultHangLimit{300};

}  // namespace trainer::supervision
