#include "datasets/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <signal.h>
#include <spdlog/sinks/base_sink.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <array>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "base/signal.h"
#include "datasets/cifar.h"
#include "tests/testing/temporary_folder.h"
#include "tests/unit/datasets/http_server.h"

namespace trainer::datasets::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

struct TarEntry {
  std::string path;
  std::string content;
  mode_t type = AE_IFREG;
  std::string link{};
  bool hard_link = false;
};

std::string tar_gz(const std::vector<TarEntry>& entries) {
  size_t capacity = 65536;
  for (const auto& entry : entries) capacity += 2 * entry.content.size() + 4096;
  std::string bytes(capacity, '\0');
  size_t used = 0;
  archive* writer = archive_write_new();
  archive_write_add_filter_gzip(writer);
  archive_write_set_format_pax_restricted(writer);
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

std::string md5_of(const std::string& bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_md5(), nullptr);
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

// What gzip cannot make smaller.
std::string random_bytes(size_t size) {
  CounterRandom random(1, 2);
  std::string bytes;
  while (bytes.size() < size) bytes += static_cast<char>(random.next_below(256));
  return bytes;
}

std::string plain_archive() {
  return tar_gz({{"numbers/", "", AE_IFDIR}, {"numbers/one.txt", "1\n"}, {"./numbers/more/two.txt", "22\n"}, {"numbers/empty", ""}});
}

// Keeps the lines, and calls `on_line` with each.
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
    // A proxy could not reach this machine's own server.
    ::setenv("no_proxy", "127.0.0.1", 1);
  }

  const fs::path& root() const { return folder_.path(); }

  // Names of what is directly in the root, hidden files too.
  std::vector<std::string> left() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root())) names.push_back(entry.path().filename().string());
    return names;
  }

  static ArchiveSource source(const std::string& url, const std::string& body) {
    return {.url = url, .md5 = md5_of(body), .folder = "numbers"};
  }

  // Serves `body` properly and fetches it.
  void fetch(const std::string& body) {
    const HttpServer server([&body](HttpServer::Connection& connection) { connection.reply(body); });
    const auto logger = make_quiet_logger();
    fetch_archive(source(server.url("/a.tar.gz"), body), root(), *logger);
  }

  // The text of the DataError of fetching `archive`. Whatever it is, nothing may be left behind.
  std::string failure(const ArchiveSource& archive) const {
    std::string text;
    try {
      const auto logger = make_quiet_logger();
      fetch_archive(archive, root(), *logger);
      ADD_FAILURE() << "no error";
    } catch (const DataError& error) {
      text = error.what();
    }
    EXPECT_THAT(left(), IsEmpty());
    EXPECT_THAT(text,
                AllOf(StartsWith("cannot get " + archive.url + ": "), EndsWith("; try again, or unpack that archive by hand, so that " +
                                                                               (root() / "numbers").string() + " holds its files")));
    return text;
  }

  std::string failure_with(const std::string& body) const {
    const HttpServer server([&body](HttpServer::Connection& connection) { connection.reply(body); });
    return failure(source(server.url("/a.tar.gz"), body));
  }

 private:
  trainer::testing::TemporaryFolder folder_;
};

TEST_F(FetchArchive, PutsTheFolderIntoPlace) {
  fetch(plain_archive());
  EXPECT_THAT(left(), ElementsAre("numbers"));
  EXPECT_EQ(read_file(root() / "numbers" / "one.txt"), "1\n");
  EXPECT_EQ(read_file(root() / "numbers" / "more" / "two.txt"), "22\n");
  EXPECT_EQ(read_file(root() / "numbers" / "empty"), "");
}

TEST_F(FetchArchive, MakesTheRoot) {
  const auto body = plain_archive();
  const HttpServer server([&body](HttpServer::Connection& connection) { connection.reply(body); });
  const auto logger = make_quiet_logger();
  fetch_archive(source(server.url("/a.tar.gz"), body), root() / "some" / "data", *logger);
  EXPECT_TRUE(fs::exists(root() / "some" / "data" / "numbers" / "one.txt"));
}

TEST_F(FetchArchive, ContactsNobodyWhenTheFolderIsThere) {
  fs::create_directory(root() / "numbers");
  const HttpServer server([](HttpServer::Connection& connection) { connection.reply(""); });
  const auto logger = make_quiet_logger();
  fetch_archive(source(server.url("/a.tar.gz"), ""), root(), *logger);
  EXPECT_EQ(server.num_requests(), 0);
  EXPECT_THAT(left(), ElementsAre("numbers"));
}

TEST_F(FetchArchive, FollowsARedirect) {
  const auto body = plain_archive();
  const HttpServer server([&body](HttpServer::Connection& connection) {
    if (connection.path() == "/moved") {
      connection.send("HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 5\r\nConnection: close\r\n\r\nmoved");
    } else {
      connection.reply(body);
    }
  });
  const auto logger = make_quiet_logger();
  fetch_archive(source(server.url("/moved"), body), root(), *logger);
  EXPECT_EQ(server.num_requests(), 2);
  EXPECT_TRUE(fs::exists(root() / "numbers" / "one.txt"));
}

TEST_F(FetchArchive, LogsALineEachTenPercent) {
  const auto body = tar_gz({{"numbers/random", random_bytes(3'000'000)}});
  const HttpServer server([&body](HttpServer::Connection& connection) { connection.reply(body); });
  const auto sink = std::make_shared<LineSink>([](const std::string&) {});
  Logger logger("test", sink);
  fetch_archive(source(server.url("/a.tar.gz"), body), root(), logger);
  std::vector<std::string> expected = {"downloading " + server.url("/a.tar.gz") + " into " + root().string()};
  for (int percent = 10; percent <= 100; percent += 10) expected.push_back(fmt::format("downloaded {} % of 2.9 MiB", percent));
  expected.push_back("unpacked into " + (root() / "numbers").string());
  EXPECT_EQ(sink->lines(), expected);
}

TEST_F(FetchArchive, RemovesWhatAKilledProcessLeft) {
  fs::create_directories(root() / ".numbers.partial" / "content" / "numbers");
  std::ofstream(root() / ".numbers.partial" / "archive") << "half";
  std::ofstream(root() / ".numbers.lock") << "";
  fetch(plain_archive());
  EXPECT_THAT(left(), ElementsAre("numbers"));
}

TEST_F(FetchArchive, TheSecondOfTwoWaitsForTheFirst) {
  const auto body = plain_archive();
  ArchiveSource archive = source("", body);
  std::mutex mutex;
  std::condition_variable changed;
  bool second_waits = false;
  const auto sink = std::make_shared<LineSink>([&](const std::string& line) {
    if (!line.starts_with("waiting for another process")) return;
    const std::lock_guard lock(mutex);
    second_waits = true;
    changed.notify_all();
  });
  Logger second_logger("second", sink);
  std::thread second;
  // The first one is in the middle of its download when the second begins, and gets the rest once the second waits.
  const HttpServer server([&](HttpServer::Connection& connection) {
    second = std::thread([&] { EXPECT_NO_THROW(fetch_archive(archive, root(), second_logger)); });
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return second_waits; }));
    connection.reply(body);
  });
  archive.url = server.url("/a.tar.gz");
  const auto logger = make_quiet_logger();
  fetch_archive(archive, root(), *logger);
  second.join();
  EXPECT_EQ(server.num_requests(), 1);
  EXPECT_THAT(sink->lines(), ElementsAre("waiting for another process that downloads " + archive.url));
  EXPECT_THAT(left(), ElementsAre("numbers"));
}

TEST_F(FetchArchive, OneThatStallsIsGivenUp) {
  const auto body = plain_archive();
  const HttpServer server([&body](HttpServer::Connection& connection) {
    connection.send(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.size()) + body.substr(0, 50));
    connection.wait_for_hang_up();
  });
  auto archive = source(server.url("/a.tar.gz"), body);
  archive.stall_timeout = std::chrono::milliseconds(300);
  EXPECT_THAT(failure(archive), HasSubstr(": the server sent nothing for 0.3s;"));
}

TEST_F(FetchArchive, OneThatNeverAnswersIsGivenUp) {
  const HttpServer server([](HttpServer::Connection& connection) { connection.wait_for_hang_up(); });
  auto archive = source(server.url("/a.tar.gz"), "");
  archive.stall_timeout = std::chrono::milliseconds(300);
  EXPECT_THAT(failure(archive), HasSubstr(": the server sent nothing for 0.3s;"));
}

TEST_F(FetchArchive, BodyThatIsCutShort) {
  const auto body = random_bytes(5000);
  const HttpServer server([&body](HttpServer::Connection& connection) {
    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\nConnection: close\r\n\r\n" + body.substr(0, 2048));
  });
  EXPECT_THAT(failure(source(server.url("/a.tar.gz"), body)), HasSubstr(": the connection was closed after 2.0 KiB;"));
}

TEST_F(FetchArchive, BodyOfNoToldLengthThatIsCutShort) {
  const auto body = plain_archive();
  const HttpServer server([&body](HttpServer::Connection& connection) {
    connection.send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body.substr(0, 50));
  });
  EXPECT_THAT(failure(source(server.url("/a.tar.gz"), body)), HasSubstr("has the MD5 sum " + md5_of(body.substr(0, 50))));
}

TEST_F(FetchArchive, WrongChecksum) {
  const HttpServer server([](HttpServer::Connection& connection) { connection.reply("something else"); });
  const auto archive = source(server.url("/a.tar.gz"), plain_archive());
  EXPECT_THAT(failure(archive), HasSubstr(fmt::format(": what came has the MD5 sum {} instead of {}, so it is damaged or another file;",
                                                      md5_of("something else"), archive.md5)));
}

TEST_F(FetchArchive, HttpError) {
  const HttpServer server([](HttpServer::Connection& connection) {
    connection.send("HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n");
  });
  EXPECT_THAT(failure(source(server.url("/a.tar.gz"), "")), HasSubstr(": the server answered with HTTP status 404;"));
}

TEST_F(FetchArchive, RedirectsInACircle) {
  const HttpServer server([](HttpServer::Connection& connection) {
    connection.send("HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  });
  EXPECT_THAT(failure(source(server.url("/a.tar.gz"), "")), HasSubstr(": Maximum (10) redirects followed;"));
}

TEST_F(FetchArchive, RedirectOutOfTheWebIsRefused) {
  const HttpServer server([](HttpServer::Connection& connection) {
    connection.send("HTTP/1.1 302 Found\r\nLocation: ftp://127.0.0.1:1/a.tar.gz\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  });
  EXPECT_THAT(failure(source(server.url("/a.tar.gz"), "")), HasSubstr(": Protocol \"ftp\" "));
}

TEST_F(FetchArchive, NobodyListens) {
  std::string url;
  {
    const HttpServer server([](HttpServer::Connection&) {});
    url = server.url("/a.tar.gz");
  }
  EXPECT_THAT(failure(source(url, "")), HasSubstr("Failed to connect to 127.0.0.1 port"));
}

// Stands for a full disk, which no test can have: writing fails in the same place.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, old_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_{};
  void (*old_handler_)(int);
};

TEST_F(FetchArchive, ArchiveThatCannotBeWritten) {
  const auto body = tar_gz({{"numbers/random", random_bytes(200'000)}});
  std::string text;
  {
    const FileSizeLimit limit(body.size() - 1);
    text = failure_with(body);
  }
  EXPECT_THAT(text, HasSubstr(": cannot write " + (root() / ".numbers.partial" / "archive").string() + ": File too large;"));
}

TEST_F(FetchArchive, ContentThatCannotBeWritten) {
  const auto body = tar_gz({{"numbers/zeros", std::string(200'000, '\0')}, {"numbers/ones", std::string(200'000, '1')}});
  ASSERT_LT(body.size(), 100'000U);
  std::string text;
  {
    const FileSizeLimit limit(199'999);
    text = failure_with(body);
  }
  EXPECT_THAT(
      text, HasSubstr(": cannot write " + (root() / ".numbers.partial" / "content" / "numbers" / "zeros").string() + ": File too large;"));
}

TEST_F(FetchArchive, RootThatCannotBeMade) {
  std::ofstream(root() / "file") << "";
  const auto logger = make_quiet_logger();
  try {
    fetch_archive(source("http://127.0.0.1/a.tar.gz", ""), root() / "file" / "data", *logger);
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr(": cannot create " + (root() / "file" / "data").string() + ": Not a directory;"));
  }
}

TEST_F(FetchArchive, PathsThatLeaveTheFolderAreRefused) {
  const std::vector<std::string> refused = {"../evil", "../../evil", "numbers/../../../evil", "numbers/..", (root() / "evil").string()};
  for (const auto& path : refused) {
    EXPECT_THAT(failure_with(tar_gz({{"numbers/one.txt", "1\n"}, {path, "evil"}})),
                HasSubstr(": the archive is refused: it holds the unsafe path \"" + path + "\";"));
  }
}

TEST_F(FetchArchive, LinksAndDevicesAreRefused) {
  const std::vector<TarEntry> refused = {
      {.path = "numbers/link", .content = "", .type = AE_IFLNK, .link = "/etc"},
      {.path = "numbers/link", .content = "", .type = AE_IFREG, .link = "numbers/one.txt", .hard_link = true},
      {.path = "numbers/link", .content = "", .type = AE_IFIFO},
  };
  for (const auto& entry : refused) {
    EXPECT_THAT(failure_with(tar_gz({{"numbers/one.txt", "1\n"}, entry})),
                HasSubstr(": the archive is refused: \"numbers/link\" in it is neither a file nor a folder;"));
  }
}

TEST_F(FetchArchive, ArchiveWithoutTheFolderIsRefused) {
  EXPECT_THAT(failure_with(tar_gz({{"letters/a.txt", "a\n"}})), HasSubstr(": the archive holds no folder numbers;"));
  EXPECT_THAT(failure_with(tar_gz({{"numbers", "a\n"}})), HasSubstr(": the archive holds no folder numbers;"));
}

TEST_F(FetchArchive, WhatIsNoArchiveIsRefused) {
  EXPECT_THAT(failure_with("<html>not what you wanted</html>"), HasSubstr(": the archive cannot be unpacked: "));
  EXPECT_THAT(failure_with(""), HasSubstr(": the archive cannot be unpacked: "));
  const auto whole = tar_gz({{"numbers/random", random_bytes(100'000)}});
  EXPECT_THAT(failure_with(whole.substr(0, whole.size() / 2)), HasSubstr(": the archive cannot be unpacked: "));
}

using FetchArchiveDeathTest = FetchArchive;

TEST_F(FetchArchiveDeathTest, StopsOnRequest) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [this] {
    const HttpServer server([](HttpServer::Connection& connection) {
      ::raise(SIGTERM);
      connection.wait_for_hang_up();
    });
    install_stop_handlers();
    const auto logger = make_quiet_logger();
    auto archive = source(server.url("/a.tar.gz"), "");
    archive.stall_timeout = std::chrono::hours(1);
    try {
      fetch_archive(archive, root(), *logger);
    } catch (const Error& error) {
      if (!left().empty()) std::exit(1);
      fs::remove_all(root());
      std::fprintf(stderr, "%s\n", error.what());
      std::exit(static_cast<int>(error.exit_code()));
    }
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(75), "stopped on request while downloading http://127.0.0.1:");
}

std::string cifar10_archive() {
  std::vector<TarEntry> entries = {{"cifar-10-batches-bin/", "", AE_IFDIR}};
  for (const auto& name : cifar10_layout().train_files) entries.push_back({"cifar-10-batches-bin/" + name, std::string(3073, '\1')});
  entries.push_back({"cifar-10-batches-bin/test_batch.bin", std::string(2 * size_t{3073}, '\2')});
  return tar_gz(entries);
}

TEST_F(FetchArchive, CifarDownloadsOnceAndThenWorksOffline) {
  const auto body = cifar10_archive();
  auto layout = cifar10_layout();
  layout.archive.md5 = md5_of(body);
  CifarOptions options;
  options.root = (root() / "data").string();
  options.download = true;
  const auto logger = make_quiet_logger();
  {
    const HttpServer server([&body](HttpServer::Connection& connection) { connection.reply(body); });
    layout.archive.url = server.url("/cifar.tar.gz");
    EXPECT_EQ(open_cifar(layout, options, Split::kTrain, *logger)->size(), 5);
    EXPECT_EQ(open_cifar(layout, options, Split::kValidation, *logger)->size(), 2);
    EXPECT_EQ(server.num_requests(), 1);
  }
  EXPECT_EQ(open_cifar(layout, options, Split::kTrain, *logger)->size(), 5);
}

TEST_F(FetchArchive, CifarIsNotDownloadedUnlessAskedFor) {
  const HttpServer server([](HttpServer::Connection& connection) { connection.reply(""); });
  auto layout = cifar10_layout();
  layout.archive.url = server.url("/cifar.tar.gz");
  CifarOptions options;
  options.root = root().string();
  const auto logger = make_quiet_logger();
  EXPECT_THROW(open_cifar(layout, options, Split::kTrain, *logger), DataError);
  EXPECT_EQ(server.num_requests(), 0);
}

}  // namespace
}  // namespace trainer::datasets::test
