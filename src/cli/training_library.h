#pragma once
// The shared library with everything that needs LibTorch. It is loaded at run time, so that commands that do not need it start at once.

#include <string>
#include <vector>

namespace trainer::cli {

// The library's entry point, with C linkage: runs the command line `args`, reports its error, and returns the exit code.
using TrainingLibraryEntry = int (*)(const std::vector<std::string>& args);
inline constexpr const char* kTrainingLibraryEntry = "trainer_run_command";

// Loads the library, which is found by the run path of the executable and stays loaded. Throws Error on failure.
TrainingLibraryEntry load_training_library();

}  // namespace trainer::cli
