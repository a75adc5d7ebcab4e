#pragma once

#include <chrono>

namespace trainer::reporting {

inline double unix_seconds() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace trainer::reporting
