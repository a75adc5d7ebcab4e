#pragma once
// The limits of threads, which the system reports without their names.

#include <exception>
#include <string>

namespace trainer::world {

// "user 1000 may have 64 processes and threads together (ulimit -u), and this control group may have 200 (pids.max)".
std::string describe_process_limits();

// Throws Error that names the limits if `count` more threads cannot run at the same time.
void check_threads(int count);

// The same text for the error of a std::thread that could not be started; empty for other errors.
std::string explain_thread_limit(const std::exception& error);

}  // namespace trainer::world
