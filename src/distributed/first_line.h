#pragma once

#include <exception>
#include <string>

namespace trainer::distributed {

// The message of an exception, without the stack trace that exceptions of LibTorch contain.
std::string message_of(const std::exception& error);
// The message of an exception of LibTorch or its backends, shortened to one line.
std::string first_line(const std::exception& error);

// Rethrows the exception that is being handled if it is an error of this process (its device, memory or arguments), not of another rank.
void rethrow_own_error(const std::exception& error);

}  // namespace trainer::distributed
