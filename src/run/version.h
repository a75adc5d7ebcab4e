#pragma once

#include <string>

namespace trainer::run {

std::string trainer_version();   // such as "0.1.0"
std::string git_revision();      // of the sources, with the suffix "-dirty" if they were changed; empty outside git
std::string libtorch_version();  // such as "2.11.0"
std::string compiler_version();
// All versions, and whether the program was built with OpenCV, one per line, for --version.
std::string version_text();

}  // namespace trainer::run
