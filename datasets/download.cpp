#include "datasets/download.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/signal.h"
#include "base/text.h"
#include "datasets/files.h"
#include "trainer/error.h"

namespace trainer::datasets {
namespace {

class Md5 {
 public:
  Md5() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_md5(), nullptr) != 1)
      throw std::runtime_error("this OpenSSL does not offer MD5");
  }
  void update(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }
  std::string hexadecimal() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), digest.data(), &size);
    std::string text;
    for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

// One transfer into `file`. libcurl is C code, so its callbacks store the reason of a failure instead of throwing.
class Transfer {
 public:
  Transfer(std::FILE* file, std::filesystem::path path, const DownloadLimits& limits, Logger& logger)
      : file_(file), path_(std::move(path)), limits_(limits), logger_(logger), curl_(curl_easy_init(), curl_easy_cleanup) {
    if (!curl_) throw std::runtime_error("libcurl does not start");
  }

  // Returns the MD5 sum of the received bytes.
  std::string run(const std::string& url) {
    std::array<char, CURL_ERROR_SIZE> details{};
    CURL* curl = curl_.get();
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, details.data());
    curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");  // also for redirects
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Transfer::on_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, this);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, this);
    const CURLcode result = curl_easy_perform(curl);
    if (result != CURLE_OK && stop_signal() != 0)
      throw Error(fmt::format("stopped on request while downloading {}", url), ExitCode::kStopped);
    if (result != CURLE_OK) throw std::runtime_error(reason(result, details.data()));
    return md5_.hexadecimal();
  }

 private:
  static size_t on_bytes(char* data, size_t, size_t size, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    return transfer.take({data, size}) ? size : size_t{CURL_WRITEFUNC_ERROR};
  }

  bool take(std::string_view bytes) {
    if (static_cast<uint64_t>(num_bytes_) + bytes.size() > limits_.num_bytes) {
      failure_ = fmt::format("the server sends more than {}", format_bytes(limits_.num_bytes));
      return false;
    }
    // Flushed, so that a full disk fails here, where errno has the reason.
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size() || std::fflush(file_) != 0) {
      failure_ = std::system_error(errno, std::generic_category(), "cannot write " + path_.string()).what();
      return false;
    }
    md5_.update(bytes);
    num_bytes_ += static_cast<int64_t>(bytes.size());
    log_progress();
    return true;
  }

  // Logs a line every 10 % if the server sent the length.
  void log_progress() {
    curl_off_t length = -1;
    curl_easy_getinfo(curl_.get(), CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (length <= 0 || num_bytes_ * 10 / length <= tenths_logged_) return;
    tenths_logged_ = num_bytes_ * 10 / length;
    logger_.info("downloaded {} % of {}", tenths_logged_ * 10, format_bytes(static_cast<uint64_t>(length)));
  }

  static int on_progress(void* self, curl_off_t, curl_off_t received, curl_off_t, curl_off_t) {
    auto& transfer = *static_cast<Transfer*>(self);
    return stop_signal() != 0 || transfer.takes_too_long(received) ? 1 : 0;
  }

  // Measured by the clock, because libcurl's limit uses an average speed, which a stall lowers only after seconds.
  bool takes_too_long(int64_t received) {
    const auto now = std::chrono::steady_clock::now();
    if (now - begin_ > limits_.total) {
      failure_ =
          fmt::format("the server sent only {} in {}", format_bytes(static_cast<uint64_t>(num_bytes_)), format_duration(limits_.total));
      return true;
    }
    if (received != last_received_) {
      last_received_ = received;
      last_change_ = now;
    }
    if (now - last_change_ <= limits_.stall) return false;
    failure_ = fmt::format("the server sent nothing for {}", format_duration(limits_.stall));
    return true;
  }

  std::string reason(CURLcode result, std::string_view details) const {
    if (!failure_.empty()) return failure_;
    if (result == CURLE_HTTP_RETURNED_ERROR) {
      long status = 0;
      curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &status);
      return fmt::format("the server answered with HTTP status {}", status);
    }
    if (result == CURLE_PARTIAL_FILE)
      return fmt::format("the connection was closed after {}", format_bytes(static_cast<uint64_t>(num_bytes_)));
    return details.empty() ? curl_easy_strerror(result) : std::string(details);
  }

  std::FILE* file_;
  std::filesystem::path path_;
  DownloadLimits limits_;
  Logger& logger_;
  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl_;
  Md5 md5_;
  std::string failure_;
  int64_t num_bytes_ = 0;
  int64_t tenths_logged_ = 0;
  int64_t last_received_ = 0;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_change_ = begin_;
};

}  // namespace

void download(const std::string& url, const std::string& md5, const std::filesystem::path& file, const DownloadLimits& limits,
              Logger& logger) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> output(std::fopen(file.c_str(), "wbxe"), std::fclose);
  if (!output) throw std::system_error(errno, std::generic_category(), "cannot write " + file.string());
  const auto actual = Transfer(output.get(), file, limits, logger).run(url);
  if (actual != md5) {
    throw std::runtime_error(
        fmt::format("the downloaded file has the MD5 sum {} instead of {}: it is damaged or another file", actual, md5));
  }
}

namespace fs = std::filesystem;

void install(const Installation& installation, Logger& logger,
             const std::function<std::filesystem::path(const std::filesystem::path& partial)>& make) {
  const auto& [root, folder, url, by_hand] = installation;
  const auto target = root / folder;
  auto name = folder;
  std::ranges::replace(name, '/', '-');
  try {
    create_folders(root);
    const FolderLock lock(root / fmt::format(".{}.lock", name), "downloads " + url, logger);
    if (fs::exists(target)) return;
    const PartialFolder partial(root / fmt::format(".{}.partial", name));
    logger.info("downloading {} into {}", url, root.string());
    put_into_place(make(partial.path()), target);
    logger.info("installed in {}", target.string());
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& reason) {
    throw DataError(
        fmt::format("cannot get {}: {}; try again, or {}, so that {} holds its files", url, reason.what(), by_hand, target.string()));
  }
}

}  // namespace trainer::datasets
