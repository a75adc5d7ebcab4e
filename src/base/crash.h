#pragma once
// What is left of a process that crashes (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT), and the stacks of one that hangs.

#include <filesystem>
#include <string>

namespace trainer {

// From here on a crash writes what the process was, its last log lines and the stack of the thread that crashed to stderr and, appended,
// to the crash file; of a mapped file that could not be read its name too. Then the process dies of the signal. To be called once, by main;
// process-wide by nature.
void install_crash_handlers();

// What the report begins with ("rank 2 of 4, step 12"), at most 255 bytes. May be called at any time, by one thread.
void describe_process(const std::string& text);
// Where the report goes beside stderr; its folder must exist by then.
void set_crash_file(const std::filesystem::path& file);
// A line that was logged; the last few are part of the report.
void remember_line(const std::string& line);

// The stacks of all threads of this process, each with its name and number, as far as they answer within a second. Functions of the
// program itself and of libraries by name where they are known.
std::string stacks_of_all_threads();

}  // namespace trainer
