#pragma once
// Download of one file from a web server, and its checksum.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/log.h"

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace trainer::datasets {

struct DownloadLimits {
  std::chrono::milliseconds stall{30'000};                 // without received data
  std::chrono::milliseconds total{std::chrono::hours(4)};  // of the whole download
  uint64_t num_bytes = uint64_t{1} << 30;
};

// How a downloaded file is recognised.
struct Checksum {
  std::string name;    // OpenSSL's, for messages too: "MD5"
  std::string digits;  // lower-case hexadecimal, the first ones or all; empty: nothing is compared
};

// The sum of bytes that are given in parts.
class Digest {
 public:
  // `name` as in Checksum. Throws std::runtime_error if OpenSSL does not have it.
  explicit Digest(const std::string& name);
  void update(std::string_view bytes);
  // Once, at the end.
  std::string hexadecimal();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

// The sum of a file, in hexadecimal; `name` as in Checksum. This and the next function throw std::runtime_error with only the reason.
std::string digest_of(const std::filesystem::path& file, const std::string& name);
bool has_checksum(const std::filesystem::path& file, const Checksum& checksum);

// Downloads `url` (http or https, redirects followed, or file) to `file` and compares its checksum. If `file` exists, it is the beginning,
// which an earlier download has left. Where there is nothing to compare, where the server cannot continue, or where the sum is another one
// after a continuation, the download begins again. Logs a line every 10 %. On failure throws std::runtime_error with only the reason, since
// the caller knows the purpose of the file, or Error with ExitCode::kStopped after a stop request; the partial file remains.
void download(const std::string& url, const Checksum& checksum, const std::filesystem::path& file, const DownloadLimits& limits,
              Logger& logger);

// Folders of a data set that are made from downloads. A folder is installed completely or not at all.

struct Installation {
  std::filesystem::path root;
  std::string folder;   // below the root, such as "MNIST/raw"
  std::string url;      // where it comes from
  std::string by_hand;  // what else the user can do: "unpack that archive by hand"
};

// Creates root/folder; does nothing if that exists. `make` receives an empty folder on the same file system and returns what is to become
// root/folder, a folder inside it. When several processes call this for the same folder, one makes it and the others wait. After a failure,
// `root` has its previous contents; leftovers of a killed process are removed. Where `make` throws std::runtime_error with only the
// reason, this throws DataError that names the URL, the reason and the remedy; an Error of `make` passes.
// Throws Error with ExitCode::kStopped after a stop request.
void install(const Installation& installation, Logger& logger,
             const std::function<std::filesystem::path(const std::filesystem::path& partial)>& make);

}  // namespace trainer::datasets
