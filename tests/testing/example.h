#pragma once
// Examples of docs/extending.md: tests compile and run them, and check that the page has the same text.

#include <stdexcept>
#include <string>

#include "base/file.h"

namespace trainer::testing {

// The lines between "// Example: NAME" and "// End of example" in a test source. `source`: its path from the repository's root.
inline std::string example_in(const std::string& source, const std::string& name) {
  const auto text = read_file(std::string(TRAINER_SOURCE_DIR) + "/" + source);
  const auto heading = "// Example: " + name + "\n";
  const auto begin = text.find(heading);
  const auto end = text.find("// End of example\n", begin);
  if (begin == std::string::npos || end == std::string::npos) throw std::runtime_error("no example " + name + " in " + source);
  return text.substr(begin + heading.size(), end - begin - heading.size());
}

inline std::string extending_page() { return read_file(std::string(TRAINER_SOURCE_DIR) + "/docs/extending.md"); }

}  // namespace trainer::testing
