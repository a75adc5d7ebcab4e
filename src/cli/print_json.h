#pragma once

#include "base/standard_output.h"
#include "reporting/json.h"

namespace trainer::cli {

// Prints a result as JSON and a newline. Not through printable() (base/printable.h), whose \x7f JSON does not know. Throws as print_text().
inline void print_json(const reporting::Json& value, int indent = -1) { print_text(reporting::to_text(value, indent) + '\n'); }

}  // namespace trainer::cli
