#pragma once

#include "reporting/json.h"
#include "run/inspection/inspect.h"

namespace trainer::commands {

// Problems, warnings and notes, and, without problems, everything that `trainer validate` shows.
reporting::Json to_json(const inspection::Inspection& inspection);

}  // namespace trainer::commands
