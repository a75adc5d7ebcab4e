#pragma once

#include <string>

namespace trainer {

// 64 hexadecimal digits from the system's generator, which nobody can guess. Throws Error.
std::string random_token();

}  // namespace trainer
