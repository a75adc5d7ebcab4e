#pragma once
// Random text that nobody can guess; reproducible random numbers are in trainer/random.h.

#include <string>

namespace trainer {

// 64 hexadecimal digits from the system's generator, which nobody can guess. Throws Error.
std::string random_token();

}  // namespace trainer
