#pragma once
// Download of one file from a web server, with its checksum computed on the way.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/log.h"

namespace trainer::datasets {

struct DownloadLimits {
  std::chrono::milliseconds stall{30'000};                 // without received data
  std::chrono::milliseconds total{std::chrono::hours(4)};  // of the whole download
  uint64_t num_bytes = uint64_t{1} << 30;
};

// Downloads `url` (http or https, redirects followed) to `file`, which must not exist yet, and compares its MD5 sum (32 lower-case
// hexadecimal digits). Logs a line every 10 %. On failure throws std::runtime_error with only the reason, since the caller knows the
// purpose of the file, or Error with ExitCode::kStopped after a stop request; the partial file remains.
void download(const std::string& url, const std::string& md5, const std::filesystem::path& file, const DownloadLimits& limits,
              Logger& logger);

}  // namespace trainer::datasets
