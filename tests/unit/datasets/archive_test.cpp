#include "datasets/archive.h"

#include <condition_variable>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "datasets/cifar.h"
#include "tests/testing/file_size_limit.h"
#include "tests/unit/datasets/fetch_archive.h"

namespace trainer::datasets::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(FetchArchive, ExtractsTheFolder) {
  fetch(plain_archive());
  EXPECT_THAT(root_entries(), ElementsAre("numbers"));
  EXPECT_EQ(read_file(root() / "numbers" / "one.txt"), "1\n");
  EXPECT_EQ(read_file(root() / "numbers" / "more" / "two.txt"), "22\n");
  EXPECT_EQ(read_file(root() / "numbers" / "empty"), "");
}

TEST_F(FetchArchive, ExtractsAZipFile) {
  const auto random = random_bytes(200'000);
  for (const char* options : {"", "zip:compression=store", "zip:zip64"}) {
    fetch(zip({{"numbers/", "", AE_IFDIR},
               {"numbers/one.txt", "1\n"},
               {"numbers/random", random},
               {"numbers/zeros", std::string(200'000, '\0')},
               {"numbers/more/empty", ""}},
              options));
    EXPECT_THAT(root_entries(), ElementsAre("numbers"));
    EXPECT_EQ(read_file(root() / "numbers/one.txt"), "1\n");
    EXPECT_EQ(read_file(root() / "numbers/random"), random);
    EXPECT_EQ(read_file(root() / "numbers/zeros"), std::string(200'000, '\0'));
    EXPECT_EQ(read_file(root() / "numbers/more/empty"), "");
    fs::remove_all(root() / "numbers");
  }
}

TEST_F(FetchArchive, ContactsNoServerWhenTheFolderExists) {
  fs::create_directory(root() / "numbers");
  const HttpServer server([](HttpServer::Connection& connection) { connection.reply(""); });
  const auto logger = make_quiet_logger();
  fetch_published(source(server.url("/a.tar.gz"), ""), root(), *logger);
  EXPECT_EQ(server.num_requests(), 0);
  EXPECT_THAT(root_entries(), ElementsAre("numbers"));
}

TEST_F(FetchArchive, RemovesFilesOfAKilledProcess) {
  fs::create_directories(root() / ".numbers.partial" / "content" / "numbers");
  std::ofstream(root() / ".numbers.partial" / "archive") << "half";
  std::ofstream(root() / ".numbers.lock") << "";
  fetch(plain_archive());
  EXPECT_THAT(root_entries(), ElementsAre("numbers"));
}

TEST_F(FetchArchive, TheSecondProcessWaitsForTheFirst) {
  const auto body = plain_archive();
  PublishedSource archive = source("", body);
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
  // The second fetch begins during the first one's download: the server answers the first only once the second waits.
  const HttpServer server([&](HttpServer::Connection& connection) {
    second = std::thread([&] { EXPECT_NO_THROW(fetch_published(archive, root(), second_logger)); });
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return second_waits; }));
    connection.reply(body);
  });
  archive.url = server.url("/a.tar.gz");
  const auto logger = make_quiet_logger();
  fetch_published(archive, root(), *logger);
  second.join();
  EXPECT_EQ(server.num_requests(), 1);
  EXPECT_THAT(sink->lines(), ElementsAre("waiting for another process that downloads " + archive.url));
  EXPECT_THAT(root_entries(), ElementsAre("numbers"));
}

TEST_F(FetchArchive, WrongChecksum) {
  const HttpServer server([](HttpServer::Connection& connection) { connection.reply("something else"); });
  const auto archive = source(server.url("/a.tar.gz"), plain_archive());
  EXPECT_THAT(failure(archive),
              HasSubstr(fmt::format(": the downloaded file has the MD5 sum {} instead of {}: it is damaged or a different file;",
                                    md5_of("something else"), archive.md5)));
}

TEST_F(FetchArchive, ArchiveThatCannotBeWritten) {
  const auto body = tar_gz({{"numbers/random", random_bytes(200'000)}});
  std::string text;
  {
    const trainer::testing::FileSizeLimit limit(body.size() - 1);
    text = failure_with(body);
  }
  EXPECT_THAT(text, HasSubstr(": cannot write " + (root() / ".numbers.partial" / "archive").string() + ": File too large;"));
}

TEST_F(FetchArchive, ContentThatCannotBeWritten) {
  const auto body = tar_gz({{"numbers/zeros", std::string(200'000, '\0')}, {"numbers/ones", std::string(200'000, '1')}});
  ASSERT_LT(body.size(), 100'000U);
  std::string text;
  {
    const trainer::testing::FileSizeLimit limit(199'999);
    text = failure_with(body);
  }
  EXPECT_THAT(
      text, HasSubstr(": cannot write " + (root() / ".numbers.partial" / "content" / "numbers" / "zeros").string() + ": File too large;"));
}

TEST_F(FetchArchive, RootThatCannotBeCreated) {
  std::ofstream(root() / "file") << "";
  const auto logger = make_quiet_logger();
  try {
    fetch_published(source("http://127.0.0.1/a.tar.gz", ""), root() / "file" / "data", *logger);
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr(": cannot create " + (root() / "file" / "data").string() + ": Not a directory;"));
  }
}

TEST_F(FetchArchive, PathsOutsideTheFolderAreRefused) {
  const std::vector<std::string> refused = {"../evil", "../../evil", "numbers/../../../evil", "numbers/..", (root() / "evil").string()};
  for (const auto& path : refused) {
    EXPECT_THAT(failure_with(tar_gz({{"numbers/one.txt", "1\n"}, {path, "evil"}})),
                HasSubstr(": the archive is refused: it contains the unsafe path \"" + path + "\";"));
  }
}

TEST_F(FetchArchive, LinksAndDevicesAreRefused) {
  const std::vector<ArchiveEntry> refused = {
      {.path = "numbers/link", .content = "", .type = AE_IFLNK, .link = "/etc"},
      {.path = "numbers/link", .content = "", .type = AE_IFREG, .link = "numbers/one.txt", .hard_link = true},
      {.path = "numbers/link", .content = "", .type = AE_IFIFO},
  };
  for (const auto& entry : refused) {
    EXPECT_THAT(failure_with(tar_gz({{"numbers/one.txt", "1\n"}, entry})),
                HasSubstr(": the archive is refused: it contains \"numbers/link\", which is neither a file nor a folder;"));
  }
}

TEST_F(FetchArchive, PathsAndLinksInZipFilesAreRefused) {
  for (const std::string path : {"../evil", "numbers/../../evil", "/evil"}) {
    EXPECT_THAT(failure_with(zip({{"numbers/one.txt", "1\n"}, {path, "evil"}})),
                HasSubstr(": the archive is refused: it contains the unsafe path \"" + path + "\";"));
  }
  EXPECT_THAT(failure_with(zip({{.path = "numbers/link", .content = "", .type = AE_IFLNK, .link = "/etc"}})),
              HasSubstr(": the archive is refused: it contains \"numbers/link\", which is neither a file nor a folder;"));
}

TEST_F(FetchArchive, DamagedZipFilesAreRefused) {
  const auto whole = zip({{"numbers/one.txt", "1\n"}, {"numbers/zeros", std::string(1000, '\0')}});
  EXPECT_THAT(failure_with(whole.substr(0, whole.size() - 1)),
              HasSubstr(": the archive cannot be unpacked: the end of the file is missing;"));
  auto changed = zip({{"numbers/one.txt", "content"}}, "zip:compression=store");
  changed[changed.find("content")] = 'C';
  EXPECT_THAT(failure_with(changed), HasSubstr(": the archive cannot be unpacked: the entry \"numbers/one.txt\" is damaged;"));
  const auto with = [this](size_t in_header, size_t in_directory, char value) {
    auto file = zip({{"numbers/one.txt", "content"}}, "zip:compression=store");
    file[in_header] = value;
    file[file.find("PK\x01\x02") + in_directory] = value;
    return failure_with(file);
  };
  EXPECT_THAT(with(8, 10, 12),
              HasSubstr(": the archive cannot be unpacked: the entry \"numbers/one.txt\" has the unsupported compression method 12;"));
  EXPECT_THAT(with(6, 8, 9), HasSubstr(": the archive cannot be unpacked: the entry \"numbers/one.txt\" is encrypted;"));
}

TEST_F(FetchArchive, ArchiveWithoutTheFolderIsRefused) {
  EXPECT_THAT(failure_with(zip({{"letters/a.txt", "a\n"}})), HasSubstr(": the archive contains no folder numbers;"));
  EXPECT_THAT(failure_with(tar_gz({{"letters/a.txt", "a\n"}})), HasSubstr(": the archive contains no folder numbers;"));
  EXPECT_THAT(failure_with(tar_gz({{"numbers", "a\n"}})), HasSubstr(": the archive contains no folder numbers;"));
}

TEST_F(FetchArchive, FilesThatAreNotArchivesAreRefused) {
  EXPECT_THAT(failure_with("<html>not what you wanted</html>"), HasSubstr(": the archive cannot be unpacked: "));
  EXPECT_THAT(failure_with(""), HasSubstr(": the archive cannot be unpacked: "));
  const auto whole = tar_gz({{"numbers/random", random_bytes(100'000)}});
  EXPECT_THAT(failure_with(whole.substr(0, whole.size() / 2)), HasSubstr(": the archive cannot be unpacked: "));
}

std::string cifar10_archive() {
  std::vector<ArchiveEntry> entries = {{"cifar-10-batches-bin/", "", AE_IFDIR}};
  for (const auto& name : cifar10_layout().train_files) entries.push_back({"cifar-10-batches-bin/" + name, std::string(3073, '\1')});
  entries.push_back({"cifar-10-batches-bin/test_batch.bin", std::string(2 * size_t{3073}, '\2')});
  return tar_gz(entries);
}

TEST_F(FetchArchive, CifarDownloadsOnceAndThenWorksOffline) {
  const auto body = cifar10_archive();
  auto layout = cifar10_layout();
  layout.source.md5 = md5_of(body);
  CifarOptions options;
  options.root = (root() / "data").string();
  options.download = true;
  const auto logger = make_quiet_logger();
  {
    const HttpServer server([&body](HttpServer::Connection& connection) { connection.reply(body); });
    layout.source.url = server.url("/cifar.tar.gz");
    EXPECT_EQ(cifar_factory(layout, options).open(data::Split::kTrain, *logger)->size(), 5);
    EXPECT_EQ(cifar_factory(layout, options).open(data::Split::kValidation, *logger)->size(), 2);
    EXPECT_EQ(server.num_requests(), 1);
  }
  EXPECT_EQ(cifar_factory(layout, options).open(data::Split::kTrain, *logger)->size(), 5);
}

TEST_F(FetchArchive, CifarIsNotDownloadedUnlessAskedFor) {
  const HttpServer server([](HttpServer::Connection& connection) { connection.reply(""); });
  auto layout = cifar10_layout();
  layout.source.url = server.url("/cifar.tar.gz");
  CifarOptions options;
  options.root = root().string();
  const auto logger = make_quiet_logger();
  EXPECT_THROW(cifar_factory(layout, options).open(data::Split::kTrain, *logger), DataError);
  EXPECT_EQ(server.num_requests(), 0);
}

}  // namespace
}  // namespace trainer::datasets::test
