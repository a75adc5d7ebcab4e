#pragma once
// Programs that the user names.

#include <sys/types.h>

#include <string>
#include <vector>

namespace trainer {

// The file that a shell would execute for this name: the name itself if it contains a slash, else the first match in PATH. Throws Error
// with only the reason: it does not exist or cannot be executed.
std::string find_program(const std::string& name);

// Starts the program `file` in its own process group, with `input` as its standard input, `output` as its standard output and standard
// error, and no other descriptors. Its environment is that of this process without the variables TRAINER_LAUNCHER_..., which hold numbers
// of descriptors that it does not inherit and the run's secret. `arguments` include argv[0]. Throws Error with only the reason.
pid_t start_program(const std::string& file, const std::vector<std::string>& arguments, int input, int output);

}  // namespace trainer
