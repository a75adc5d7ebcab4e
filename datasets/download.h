#pragma once
// Downloads a file from a web server and checks its checksum.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/log.h"

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace trainer::datasets {

struct DownloadLimits {
  std::chrono::milliseconds stall{30'000};                 // longest time without received data
  std::chrono::milliseconds total{std::chrono::hours(4)};  // longest duration of the whole download
  uint64_t num_bytes = uint64_t{1} << 30;
};

// The expected checksum of a downloaded file.
struct Checksum {
  std::string name;    // OpenSSL's name, such as "MD5"; also used in messages
  std::string digits;  // all or the first hexadecimal digits, in lower case; empty: nothing is compared
};

// Computes the checksum of bytes that are passed in parts.
class Digest {
 public:
  // `name` as in Checksum. Throws std::runtime_error if OpenSSL does not have it.
  explicit Digest(const std::string& name);
  void update(std::string_view bytes);
  // To be called once, at the end.
  std::string hexadecimal();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

// The checksum of a file, in hexadecimal; `name` as in Checksum. digest_of() and has_checksum() throw std::runtime_error with only the
// reason.
std::string digest_of(const std::filesystem::path& file, const std::string& name);
bool has_checksum(const std::filesystem::path& file, const Checksum& checksum);

// Downloads `url` (http or https, with redirects, or file) to `file` and compares its checksum. An existing `file` is the beginning of an
// earlier download, which is continued. If there is no checksum, if the server cannot continue, or if the checksum is wrong after a
// continuation, the download starts from the beginning. Logs a line every 10 %. On failure throws std::runtime_error with only the reason,
// because the caller knows the purpose of the file, or Error with ExitCode::kStopped after a stop request. The partial file
// remains if a later call can continue it.
void download(const std::string& url, const Checksum& checksum, const std::filesystem::path& file, const DownloadLimits& limits,
              Logger& logger);

}  // namespace trainer::datasets
