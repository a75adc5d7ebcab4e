#pragma once

#include <string>

namespace trainer::session {

std::string trainer_version();   // "0.1.0"
std::string git_revision();      // of the sources that were built, "-dirty" behind it when they were changed; empty outside git
std::string libtorch_version();  // "2.11.0"
std::string compiler_version();
// All of it in a few lines, for --version.
std::string version_text();

}  // namespace trainer::session
