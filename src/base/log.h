#pragma once
// Logging over spdlog. A logger belongs to one rank and is passed to the code that logs. That code does not check the rank first: a rank
// that must not print has a logger without sinks. What a terminal would execute is shown in its place (base/text.h), in files too:
// messages quote files, names and other processes.

#include <spdlog/logger.h>

#include <filesystem>
#include <memory>

namespace trainer {

using Logger = spdlog::logger;

// Logs to stderr. Warnings and errors have their level as a prefix. A `rank` other than 0 prints only these, with its rank as a prefix.
// Lines of level debug go only to files (add_file), unless the level of the terminal's sink is lowered. `erases_line`: for a process on
// whose terminal another one may have drawn a progress bar; each message then begins by erasing the line that it is written to. A line that
// cannot be written to stderr is dropped; the first time, unless a reader has ended, the next line of a file (add_file) is a warning.
std::shared_ptr<Logger> make_console_logger(int rank = 0, bool erases_line = false);

// From now on, also appends each line with date, time and level to `file`. Throws Error when the file cannot be opened.
void add_file(Logger& logger, const std::filesystem::path& file);

// A logger without sinks, for tests and for ranks that must not print.
std::shared_ptr<Logger> make_quiet_logger();

}  // namespace trainer
