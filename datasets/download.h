#pragma once
// Downloads one file from a web server and checks it during the transfer.

#include <chrono>
#include <filesystem>
#include <string>

#include "base/log.h"

namespace trainer::datasets {

// Downloads `url` (http or https, redirects followed) to `file`, which must not exist yet, and compares its MD5 sum (32 lower-case
// hexadecimal digits). `stall_timeout` is the longest time without a byte. Logs a line each 10 %. Throws std::runtime_error with only
// the reason (the caller knows the purpose of the file), or Error with ExitCode::kStopped after a stop request; the partial file stays.
void download(const std::string& url, const std::string& md5, const std::filesystem::path& file, std::chrono::milliseconds stall_timeout,
              Logger& logger);

}  // namespace trainer::datasets
