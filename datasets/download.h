#pragma once
// One file from a web server, checked while it comes.

#include <chrono>
#include <filesystem>
#include <string>

#include "base/log.h"

namespace trainer::datasets {

// Downloads `url` (http or https, redirects followed) to `file`, which must not exist yet, and compares its MD5 sum (32 lower-case
// hexadecimal digits). `stall_timeout` is the longest time without a byte. Logs a line each 10 %. Throws std::runtime_error with the
// reason alone, since the caller knows what the file was for, and leaves what had come; Error with ExitCode::kStopped after a
// request to stop.
void download(const std::string& url, const std::string& md5, const std::filesystem::path& file, std::chrono::milliseconds stall_timeout,
              Logger& logger);

}  // namespace trainer::datasets
