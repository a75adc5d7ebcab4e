#pragma once
// How a process ends: reports of crashes (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT), the stacks of a process that hangs, exit codes.

#include <exception>
#include <filesystem>
#include <string>

#include "trainer/error.h"

namespace trainer {

// Installs handlers that print a report of a crash to stderr and append it to the crash file: the description of the process, the stack of
// the crashed thread and, if a mapped file could not be read, its name. To be called once.
void install_crash_handlers();

// Sets the beginning of the report ("rank 2 of 4, step 12"), at most 255 bytes. May be called at any time, but only by one thread.
void describe_process(const std::string& text);
// Sets the crash file; its folder must exist when the report is written.
void set_crash_file(const std::filesystem::path& file);

// The stacks of all threads of this process. Threads that block signals or do not respond in time have none.
std::string stacks_of_all_threads();

// How a process has ended: "was killed by signal 9 (Killed)", "ended with exit code 1". `status`: from waitpid.
std::string describe_end(int status);

// The exit code of an Error; kFailure for other exceptions.
ExitCode exit_code_of(const std::exception& error);

// Ends the process at once, without destructors, which could wait for other threads or ranks. For all code that ends a process, also in a
// signal handler and after fork.
[[noreturn]] void end_process(int exit_code);
[[noreturn]] inline void end_process(ExitCode exit_code) { end_process(static_cast<int>(exit_code)); }

}  // namespace trainer
