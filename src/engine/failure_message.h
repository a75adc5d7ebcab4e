#pragma once

#include <exception>
#include <string>

#include "engine/parts.h"

namespace trainer::engine {

// What an error that is not one of this program's says about a training: where it happened, and what to do if memory did not suffice.
std::string describe_failure(const std::exception& error, const Parts& parts);

}  // namespace trainer::engine
