#pragma once
// Logging over spdlog. A logger belongs to one rank and is passed to the code that logs. That code does not check the rank first: a rank
// that must not print has a logger without sinks. Control characters are escaped (base/text.h), in files too, because messages quote files,
// names and other processes.

#include <spdlog/logger.h>

#include <filesystem>
#include <memory>

namespace trainer {

using Logger = spdlog::logger;

// Logs to stderr. Warnings and errors have their level as a prefix. A `rank` other than 0 prints only warnings and errors, with its rank as
// a prefix. Debug lines are written to files (add_file), but printed only if the level of the sink for stderr is lowered. A line that
// cannot be written is dropped. `erases_line`: each message first erases the current line, on which another process may have drawn a
// progress bar.
std::shared_ptr<Logger> make_console_logger(int rank = 0, bool erases_line = false);

// From now on, also appends each line with date, time and level to `file`. Throws Error when the file cannot be opened.
void add_file(Logger& logger, const std::filesystem::path& file);

// A logger without sinks, for tests and for ranks that must not print.
std::shared_ptr<Logger> make_quiet_logger();

}  // namespace trainer
