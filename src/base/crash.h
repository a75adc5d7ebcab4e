#pragma once
// Reports of a process that crashes (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT), and the stacks of a process that hangs.

#include <filesystem>
#include <string>

namespace trainer {

// Installs handlers that report a crash to stderr and append the report to the crash file: the description of the process, its last log
// lines, the stack of the crashed thread, and the name of the mapped file if one could not be read. Then the signal ends the process.
// Process-wide; to be called once, by main.
void install_crash_handlers();

// Sets the beginning of the report ("rank 2 of 4, step 12"), at most 255 bytes. May be called at any time, by one thread.
void describe_process(const std::string& text);
// Sets the crash file; its folder must exist when the report is written.
void set_crash_file(const std::filesystem::path& file);
// Records a logged line; the last 16 are part of the report.
void remember_line(const std::string& line);

// The stacks of all threads of this process, each with the thread's number and name; a thread that does not answer within a second has no
// stack. Functions of the program and of libraries are named where their symbols are known.
std::string stacks_of_all_threads();

}  // namespace trainer
