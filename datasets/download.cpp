#include "datasets/download.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/signal.h"
#include "base/text.h"
#include "base/url.h"
#include "datasets/files.h"
#include "trainer/error.h"

namespace trainer::datasets {

Digest::Digest(const std::string& name) : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  const auto* type = EVP_get_digestbyname(name.c_str());
  if (!context_ || type == nullptr || EVP_DigestInit_ex(context_.get(), type, nullptr) != 1)
    throw std::runtime_error("this OpenSSL does not support " + name);
}

void Digest::update(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }

std::string Digest::hexadecimal() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_DigestFinal_ex(context_.get(), digest.data(), &size);
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string digest_of(const std::filesystem::path& path, const std::string& name) {
  const MappedFile file(path);
  Digest digest(name);
  digest.update({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  return digest.hexadecimal();
}

namespace {

// libcurl looks for the certificates at the path of the distribution on which it was built, but a bundle of this program also runs on other
// distributions.
void use_certificates_of_this_system(CURL* curl) {
  const char* default_file = nullptr;
  curl_easy_getinfo(curl, CURLINFO_CAINFO, &default_file);
  std::error_code ignored;
  if (default_file == nullptr || std::filesystem::exists(default_file, ignored)) return;
  constexpr std::array kFiles = {"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // Fedora and Enterprise Linux
                                 "/etc/ssl/ca-bundle.pem"};                            // openSUSE
  for (const char* file : kFiles) {
    if (!std::filesystem::exists(file, ignored)) continue;
    curl_easy_setopt(curl, CURLOPT_CAINFO, file);
    return;
  }
}

// A transfer that appends to the file `path`. libcurl is C code, so its callbacks store the reason of a failure instead of throwing.
class Transfer {
 public:
  Transfer(std::filesystem::path path, int64_t num_bytes, const DownloadLimits& limits, Logger& logger)
      : path_(std::move(path)),
        file_(open_file(path_, O_WRONLY | O_CREAT | O_APPEND, "write")),
        limits_(limits),
        logger_(logger),
        curl_(curl_easy_init(), curl_easy_cleanup),
        num_earlier_(num_bytes),
        num_bytes_(num_bytes) {
    if (!curl_) throw std::runtime_error("libcurl cannot be initialised");
  }

  // Returns false if the server cannot continue the earlier download.
  bool run(const std::string& url) {
    std::array<char, CURL_ERROR_SIZE> details{};
    CURL* curl = curl_.get();
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, details.data());
    use_certificates_of_this_system(curl);
    curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https,file");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(limits_.num_bytes) - num_earlier_);
    curl_easy_setopt(curl, CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(num_earlier_));
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    // A part of a compressed body would not be a part of the file. Bodies are not decompressed, because some servers declare that of a .gz
    // file as compressed.
    curl_easy_setopt(curl, CURLOPT_ACCEPT_ENCODING, "identity");
    curl_easy_setopt(curl, CURLOPT_HTTP_CONTENT_DECODING, 0L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Transfer::on_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, this);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, this);
    const CURLcode result = curl_easy_perform(curl);
    if (result != CURLE_OK && stop_signal() != 0)
      throw Error(fmt::format("stopped on request while downloading {}", without_secrets(url)), ExitCode::kStopped);
    if (num_earlier_ > 0 && is_refused_continuation(result)) return false;
    if (result == CURLE_FILESIZE_EXCEEDED) refuse_size();
    if (result != CURLE_OK) throw std::runtime_error(reason(result, details.data()));
    return true;
  }

 private:
  static size_t on_bytes(char* data, size_t, size_t size, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    return transfer.take({data, size}) ? size : size_t{CURL_WRITEFUNC_ERROR};
  }

  bool is_refused_continuation(CURLcode result) const {
    constexpr long kRangeNotSatisfiable = 416;
    long status = 0;
    curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &status);
    return result == CURLE_RANGE_ERROR || result == CURLE_BAD_DOWNLOAD_RESUME || status == kRangeNotSatisfiable;
  }

  bool take(std::string_view bytes) {
    if (static_cast<uint64_t>(num_bytes_) + bytes.size() > limits_.num_bytes) {
      refuse_size();
      return false;
    }
    num_bytes_ += static_cast<int64_t>(bytes.size());
    if (!write_all(file_.number(), bytes)) {
      failure_ = std::system_error(errno, std::generic_category(), "cannot write " + path_.string()).what();
      return false;
    }
    log_progress();
    return true;
  }

  // What the server sends is not the file, so it must not be continued.
  void refuse_size() {
    failure_ = fmt::format("the server sends more than {}", format_bytes(limits_.num_bytes));
    std::filesystem::remove(path_);
  }

  // Logs a line every 10 % if the server has sent the length.
  void log_progress() {
    curl_off_t length = -1;
    curl_easy_getinfo(curl_.get(), CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    length += length > 0 ? num_earlier_ : 0;
    if (length <= 0 || num_bytes_ * 10 / length <= tenths_logged_) return;
    tenths_logged_ = num_bytes_ * 10 / length;
    logger_.info("downloaded {} % of {}", tenths_logged_ * 10, format_bytes(static_cast<uint64_t>(length)));
  }

  static int on_progress(void* self, curl_off_t, curl_off_t received, curl_off_t, curl_off_t) {
    auto& transfer = *static_cast<Transfer*>(self);
    return stop_signal() != 0 || transfer.takes_too_long(received) ? 1 : 0;
  }

  // libcurl's own limit is not used, because it is for an average speed, which falls only seconds after the transfer has stalled.
  bool takes_too_long(int64_t received) {
    const auto now = std::chrono::steady_clock::now();
    if (now - begin_ > limits_.total) {
      failure_ =
          fmt::format("the server sent only {} in {}", format_bytes(static_cast<uint64_t>(received)), format_duration(limits_.total));
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

  std::filesystem::path path_;
  Descriptor file_;
  DownloadLimits limits_;
  Logger& logger_;
  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl_;
  std::string failure_;
  int64_t num_earlier_;  // bytes of an earlier download
  int64_t num_bytes_;
  int64_t tenths_logged_ = 0;
  int64_t last_received_ = 0;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_change_ = begin_;
};

}  // namespace

bool has_checksum(const std::filesystem::path& file, const Checksum& checksum) {
  return checksum.digits.empty() || digest_of(file, checksum.name).starts_with(checksum.digits);
}

void download(const std::string& url, const Checksum& checksum, const std::filesystem::path& file, const DownloadLimits& limits,
              Logger& logger) {
  // Without a checksum, nothing would detect that an existing `file` is the beginning of another file.
  if (checksum.digits.empty()) std::filesystem::remove(file);
  const bool has_beginning = std::filesystem::exists(file);
  if (has_beginning && has_checksum(file, checksum)) return;
  const auto num_earlier = has_beginning ? static_cast<int64_t>(std::filesystem::file_size(file)) : 0;
  const auto begin_again = [&] {
    std::filesystem::remove(file);
    download(url, checksum, file, limits, logger);
  };
  try {
    if (!Transfer(file, num_earlier, limits, logger).run(url)) return begin_again();
  } catch (const std::exception&) {
    if (checksum.digits.empty()) std::filesystem::remove(file);
    throw;
  }
  if (checksum.digits.empty()) return;
  const auto actual = digest_of(file, checksum.name);
  if (actual.starts_with(checksum.digits)) return;
  if (num_earlier > 0) return begin_again();
  std::filesystem::remove(file);
  throw std::runtime_error(fmt::format("the downloaded file has the {} sum {} instead of {}: it is damaged or a different file",
                                       checksum.name, actual.substr(0, checksum.digits.size()), checksum.digits));
}

}  // namespace trainer::datasets
