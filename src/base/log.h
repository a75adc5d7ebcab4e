#pragma once
// Logging over spdlog. A logger belongs to one rank and is handed down to whoever has something to say; nobody asks for a rank
// before printing, because a rank that is to be quiet has a logger without sinks.

#include <spdlog/logger.h>

#include <filesystem>
#include <memory>

namespace trainer {

using Logger = spdlog::logger;

// Lines as they are on stderr, warnings and errors with their level in front. A `rank` other than 0 is quiet but for those, which it
// puts its number before. Lines of level debug go to files alone (add_file).
std::shared_ptr<Logger> make_console_logger(int rank = 0);

// From here on the lines also go to `file` (appended), each with date, time and level.
// Throws Error when the file cannot be opened.
void add_file(Logger& logger, const std::filesystem::path& file);

// Says nothing. For tests, and for ranks that are to be quiet.
std::shared_ptr<Logger> make_quiet_logger();

}  // namespace trainer
