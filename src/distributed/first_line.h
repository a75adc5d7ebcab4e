#pragma once

#include <exception>
#include <string>

namespace trainer::distributed {

// What an exception of LibTorch or of its backends says, without its stack: one line.
std::string first_line(const std::exception& error);

}  // namespace trainer::distributed
