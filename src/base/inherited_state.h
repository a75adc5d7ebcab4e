#pragma once
// What a process inherits from the program that starts it, and what may be missing of it.

namespace trainer {

// To be called by main before anything else:
// - Descriptors 0 to 2 that are closed are opened on /dev/null, so that no file of this program gets one of these numbers and then what is
//   printed. Reading from it finds nothing, and messages are discarded, but writing results to a closed standard output stays an error
//   (base/standard_output.h). Ends the process with code 1 if there is no /dev/null.
// - SIGXFSZ is ignored: a file that exceeds its limit (ulimit -f) is then an error of the system call that writes it.
// - SIGCHLD is not ignored: otherwise the end of a child process would go unnoticed.
void repair_inherited_state();

// Throws Error if the working folder has been removed. LibTorch's kernels cannot be loaded there, and no relative path can be used.
void check_working_folder();

}  // namespace trainer
