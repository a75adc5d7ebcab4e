#pragma once

#include <string>

#include "base/file.h"

namespace trainer::testing {

// Whether docs/extending.md shows the whole text of tests/examples/<file> as code.
inline bool is_shown_in_docs(const std::string& file) {
  const std::string root = TRAINER_SOURCE_DIR;
  return read_file(root + "/docs/extending.md").find("```cpp\n" + read_file(root + "/tests/examples/" + file) + "```\n") !=
         std::string::npos;
}

}  // namespace trainer::testing
