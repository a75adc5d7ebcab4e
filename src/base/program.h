#pragma once
// Programs, those that the user names (logging.command) and this one, and the host on which they run.

#include <sys/types.h>

#include <string>
#include <vector>

namespace trainer {

// The file that a shell would execute for this name: the name itself if it contains a slash, else the first match in the absolute
// folders of PATH. Throws Error with only the reason if no such file exists or it cannot be executed.
std::string find_program(const std::string& name);

// The file of this program. Throws Error if /proc is not mounted.
std::string own_program();

// The name of this host.
std::string host_name();

// The environment of this process: "NAME=value".
std::vector<std::string> inherited_environment();

// Pointers to the texts, which must outlive them, and a null pointer, as posix_spawn() and execve() need them.
std::vector<char*> pointers_to(const std::vector<std::string>& texts);

// Starts the program `file` in its own process group, with `input` as its standard input, this process's standard error as both outputs, no
// other descriptors, and without the variables TRAINER_LAUNCHER_..., which contain the run's secret. `arguments` include argv[0]. Throws
// Error with only the reason.
pid_t start_program(const std::string& file, const std::vector<std::string>& arguments, int input);

}  // namespace trainer
