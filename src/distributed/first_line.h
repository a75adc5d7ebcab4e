#pragma once

#include <exception>
#include <string>

namespace trainer::distributed {

// The message of an exception of LibTorch or its backends, without the stack trace: one line.
std::string first_line(const std::exception& error);

}  // namespace trainer::distributed
