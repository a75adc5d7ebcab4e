#pragma once

#include <exception>
#include <string>

namespace trainer::distributed {

// The message of an exception, without the stack trace that those of LibTorch have.
std::string message_of(const std::exception& error);
// That of an exception of LibTorch or its backends, in one line.
std::string first_line(const std::exception& error);

// Throws the exception that is being handled again if it is an error of this process's own device or memory. Such an error may surface in
// a collective, but says nothing of the other ranks.
void rethrow_own_error(const std::exception& error);

}  // namespace trainer::distributed
