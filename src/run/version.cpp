#include "run/version.h"

#include <fmt/format.h>
#include <torch/version.h>

#include "git_revision.h"
#include "trainer/version.h"

namespace trainer::run {

std::string trainer_version() { return TRAINER_VERSION; }
std::string git_revision() { return TRAINER_GIT_REVISION; }
std::string libtorch_version() { return TORCH_VERSION; }
std::string compiler_version() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

std::string version_text() {
  const auto revision = git_revision();
  return fmt::format("trainer {}{}\nLibTorch {}\n{}\nOpenCV: {}", trainer_version(), revision.empty() ? "" : " (" + revision + ")",
                     libtorch_version(), compiler_version(), TRAINER_WITH_OPENCV ? "yes" : "no");
}

}  // namespace trainer::run
