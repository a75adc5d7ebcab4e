#pragma once
// For tests of archives and downloads: archives made in memory, and a fixture that serves and fetches one.

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <spdlog/sinks/base_sink.h>
#include <stdlib.h>

#include <array>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "datasets/archive.h"
#include "tests/testing/temporary_folder.h"
#include "tests/unit/datasets/http_server.h"
#include "trainer/error.h"
#include "trainer/random.h"

namespace trainer::datasets::test {

namespace fs = std::filesystem;

struct ArchiveEntry {
  std::string path;
  std::string content;
  mode_t type = AE_IFREG;
  std::string link{};
  bool hard_link = false;
};

// `set_format`: sets the format of a new libarchive writer.
inline std::string archive_of(const std::vector<ArchiveEntry>& entries, const std::function<void(archive*)>& set_format) {
  size_t capacity = 65536;
  for (const auto& entry : entries) capacity += 2 * entry.content.size() + 4096;
  std::string bytes(capacity, '\0');
  size_t used = 0;
  archive* writer = archive_write_new();
  set_format(writer);
  archive_write_open_memory(writer, bytes.data(), bytes.size(), &used);
  for (const auto& [path, content, type, link, hard_link] : entries) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, path.c_str());
    archive_entry_set_filetype(entry, type);
    archive_entry_set_perm(entry, 0755);
    archive_entry_set_size(entry, static_cast<la_int64_t>(content.size()));
    if (!link.empty() && hard_link) archive_entry_set_hardlink(entry, link.c_str());
    if (!link.empty() && !hard_link) archive_entry_set_symlink(entry, link.c_str());
    archive_write_header(writer, entry);
    archive_write_data(writer, content.data(), content.size());
    archive_entry_free(entry);
  }
  archive_write_close(writer);
  archive_write_free(writer);
  bytes.resize(used);
  return bytes;
}

inline std::string tar_gz(const std::vector<ArchiveEntry>& entries) {
  return archive_of(entries, [](archive* writer) {
    archive_write_add_filter_gzip(writer);
    archive_write_set_format_pax_restricted(writer);
  });
}

// `options`: of libarchive, such as "zip:compression=store".
inline std::string zip(const std::vector<ArchiveEntry>& entries, const char* options = "") {
  return archive_of(entries, [options](archive* writer) {
    archive_write_set_format_zip(writer);
    archive_write_set_options(writer, options);
    archive_write_set_bytes_in_last_block(writer, 1);
  });
}

inline std::string md5_of(const std::string& bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_md5(), nullptr);
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

// Bytes that gzip cannot compress.
inline std::string random_bytes(size_t size) {
  CounterRandom random(1, 2);
  std::string bytes;
  while (bytes.size() < size) bytes += static_cast<char>(random.next_below(256));
  return bytes;
}

inline std::string plain_archive() {
  return tar_gz({{"numbers/", "", AE_IFDIR}, {"numbers/one.txt", "1\n"}, {"./numbers/more/two.txt", "22\n"}, {"numbers/empty", ""}});
}

// A log sink that keeps the lines, and calls `on_line` with each.
class LineSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit LineSink(std::function<void(const std::string&)> on_line) : on_line_(std::move(on_line)) {}
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    lines_.emplace_back(message.payload.data(), message.payload.size());
    on_line_(lines_.back());
  }
  void flush_() override {}

  std::function<void(const std::string&)> on_line_;
  std::vector<std::string> lines_;
};

class FetchArchive : public ::testing::Test {
 protected:
  FetchArchive() {
    // A proxy could not reach a server on the loopback interface, so the proxy is not used.
    ::setenv("no_proxy", "127.0.0.1", 1);
  }

  const fs::path& root() const { return folder_.path(); }

  // Names of the files and folders directly in the root, including hidden ones.
  std::vector<std::string> root_entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root())) names.push_back(entry.path().filename().string());
    return names;
  }

  static PublishedSource source(const std::string& url, const std::string& body) {
    return {.title = "Numbers", .url = url, .md5 = md5_of(body), .folder = "numbers"};
  }

  // Serves `body` with a correct header and fetches it.
  void fetch(const std::string& body) {
    const HttpServer server([&body](HttpServer::Connection& connection) { connection.reply(body); });
    const auto logger = make_quiet_logger();
    fetch_published(source(server.url("/a.tar.gz"), body), root(), *logger);
  }

  // The text of the DataError thrown when `archive` is fetched. Expects that no file remains.
  std::string failure(const PublishedSource& archive) const {
    std::string text;
    try {
      const auto logger = make_quiet_logger();
      fetch_published(archive, root(), *logger);
      ADD_FAILURE() << "no error";
    } catch (const DataError& error) {
      text = error.what();
    }
    EXPECT_THAT(root_entries(), ::testing::IsEmpty());
    EXPECT_THAT(text, ::testing::AllOf(::testing::StartsWith("cannot download " + archive.url + ": "),
                                       ::testing::EndsWith("; try again, or unpack that archive by hand so that its files are in " +
                                                           (root() / "numbers").string())));
    return text;
  }

  std::string failure_with(const std::string& body) const {
    const HttpServer server([&body](HttpServer::Connection& connection) { connection.reply(body); });
    return failure(source(server.url("/a.tar.gz"), body));
  }

 private:
  trainer::testing::TemporaryFolder folder_;
};

}  // namespace trainer::datasets::test
