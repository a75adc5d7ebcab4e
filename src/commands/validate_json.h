#pragma once

#include <string>

#include "inspection/inspect.h"

namespace trainer::commands {

// One JSON value: problems, warnings and notes, and, without problems, everything that `trainer validate` shows.
std::string to_json(const inspection::Inspection& inspection);

}  // namespace trainer::commands
