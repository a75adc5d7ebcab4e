#pragma once
// Programs that the user names.

#include <sys/types.h>

#include <string>
#include <vector>

namespace trainer {

// The file that a shell would execute for this name: the name itself if it has a slash, else a file of a folder in PATH. Throws Error with
// only the reason: there is none, or it cannot be executed.
std::string find_program(const std::string& name);

// Starts the program `file`, in a process group of its own, with `input` as its standard input, `output` as its standard output and
// standard error, and no other descriptors. It gets this process's environment without what the launcher tells its own processes alone
// (TRAINER_LAUNCHER_...: descriptors, which it does not get, and the run's secret). `arguments`: with argv[0]. Throws Error with only the
// reason.
pid_t start_program(const std::string& file, const std::vector<std::string>& arguments, int input, int output);

}  // namespace trainer
