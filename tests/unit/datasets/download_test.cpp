#include "datasets/download.h"

#include <signal.h>

#include <cstdio>
#include <cstdlib>

#include "base/signal.h"
#include "tests/unit/datasets/fetch_archive.h"

namespace trainer::datasets::test {
namespace {

using ::testing::HasSubstr;

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
  fetch_published(source(server.url("/moved"), body), root(), *logger);
  EXPECT_EQ(server.num_requests(), 2);
  EXPECT_TRUE(fs::exists(root() / "numbers" / "one.txt"));
}

TEST_F(FetchArchive, LogsALineForEachTenPercent) {
  const auto body = tar_gz({{"numbers/random", random_bytes(3'000'000)}});
  const HttpServer server([&body](HttpServer::Connection& connection) { connection.reply(body); });
  const auto sink = std::make_shared<LineSink>([](const std::string&) {});
  Logger logger("test", sink);
  fetch_published(source(server.url("/a.tar.gz"), body), root(), logger);
  std::vector<std::string> expected = {"downloading " + server.url("/a.tar.gz") + " into " + root().string()};
  for (int percent = 10; percent <= 100; percent += 10) expected.push_back(fmt::format("downloaded {} % of 2.9 MiB", percent));
  expected.push_back("installed in " + (root() / "numbers").string());
  EXPECT_EQ(sink->lines(), expected);
}

TEST_F(FetchArchive, ServerThatStallsTimesOut) {
  const auto body = plain_archive();
  const HttpServer server([&body](HttpServer::Connection& connection) {
    connection.send(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.size()) + body.substr(0, 50));
    connection.wait_for_hang_up();
  });
  auto archive = source(server.url("/a.tar.gz"), body);
  archive.limits.stall = std::chrono::milliseconds(300);
  EXPECT_THAT(failure(archive), HasSubstr(": the server sent nothing for 0.3s;"));
}

TEST_F(FetchArchive, EndlessBodyIsRefused) {
  const HttpServer server([](HttpServer::Connection& connection) {
    connection.send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + random_bytes(100'000));
    connection.wait_for_hang_up();
  });
  auto archive = source(server.url("/a.tar.gz"), "");
  archive.limits.num_bytes = 50'000;
  EXPECT_THAT(failure(archive), HasSubstr(": the server sends more than 48.8 KiB;"));
}

TEST_F(FetchArchive, TooSlowServerTimesOut) {
  const HttpServer server([](HttpServer::Connection& connection) {
    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n");
    for (int i = 0; i < 10; ++i) {
      connection.send("x");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
  auto archive = source(server.url("/a.tar.gz"), "");
  archive.limits.total = std::chrono::milliseconds(500);
  EXPECT_THAT(failure(archive), ::testing::ContainsRegex(": the server sent only [0-9]+ B in 0.5s;"));
}

TEST_F(FetchArchive, TruncatedBodyIsRefused) {
  const auto body = random_bytes(5000);
  const HttpServer server([&body](HttpServer::Connection& connection) {
    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\nConnection: close\r\n\r\n" + body.substr(0, 2048));
  });
  EXPECT_THAT(failure(source(server.url("/a.tar.gz"), body)), HasSubstr(": the connection was closed after 2.0 KiB;"));
}

TEST_F(FetchArchive, HttpError) {
  const HttpServer server([](HttpServer::Connection& connection) {
    connection.send("HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n");
  });
  EXPECT_THAT(failure(source(server.url("/a.tar.gz"), "")), HasSubstr(": the server answered with HTTP status 404;"));
}

TEST_F(FetchArchive, RedirectLoopIsRefused) {
  const HttpServer server([](HttpServer::Connection& connection) {
    connection.send("HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  });
  EXPECT_THAT(failure(source(server.url("/a.tar.gz"), "")), HasSubstr(": Maximum (10) redirects followed;"));
}

TEST_F(FetchArchive, RedirectToAnotherProtocolIsRefused) {
  const HttpServer server([](HttpServer::Connection& connection) {
    connection.send("HTTP/1.1 302 Found\r\nLocation: ftp://127.0.0.1:1/a.tar.gz\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  });
  EXPECT_THAT(failure(source(server.url("/a.tar.gz"), "")), HasSubstr(": Protocol \"ftp\" "));
}

TEST_F(FetchArchive, ConnectionRefused) {
  std::string url;
  {
    const HttpServer server([](HttpServer::Connection&) {});
    url = server.url("/a.tar.gz");
  }
  EXPECT_THAT(failure(source(url, "")), HasSubstr("Failed to connect to 127.0.0.1 port"));
}

// What a server sends to `connection` is downloaded with this checksum and a limit of 1000 bytes; returns whether its bytes remain.
class PartialFile : public FetchArchive {
 protected:
  bool remains(const std::string& header, size_t num_bytes, const std::string& digits) const {
    const HttpServer server([&](HttpServer::Connection& connection) {
      connection.send("HTTP/1.1 200 OK\r\nConnection: close\r\n" + header + "\r\n" + random_bytes(num_bytes));
    });
    const auto logger = make_quiet_logger();
    const auto file = root() / "part";
    EXPECT_THROW(download(server.url("/a"), {"SHA256", digits}, file, {.num_bytes = 1000}, *logger), std::runtime_error);
    return fs::remove(file);
  }
};

TEST_F(PartialFile, RemainsOnlyIfItCanBeContinued) {
  EXPECT_TRUE(remains("Content-Length: 900\r\n", 500, "0123abcd"));
  EXPECT_FALSE(remains("Content-Length: 900\r\n", 500, "")) << "nothing would detect that it is a part of another file";
  EXPECT_FALSE(remains("Content-Length: 900\r\n", 900, "0123abcd")) << "another file";
  EXPECT_FALSE(remains("", 500, "0123abcd")) << "another file";
  EXPECT_FALSE(remains("", 100'000, "0123abcd")) << "an endless one";
  EXPECT_FALSE(remains("Content-Length: 2000\r\n", 500, "0123abcd")) << "a longer one than the file can be";
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
    archive.limits.stall = std::chrono::hours(1);
    try {
      fetch_published(archive, root(), *logger);
    } catch (const Error& error) {
      if (!root_entries().empty()) std::exit(1);
      fs::remove_all(root());
      std::fprintf(stderr, "%s\n", error.what());
      std::exit(static_cast<int>(error.exit_code()));
    }
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(75), "stopped on request while downloading http://127.0.0.1:");
}

}  // namespace
}  // namespace trainer::datasets::test
