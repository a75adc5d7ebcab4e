#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "distributed/secret.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer::distributed::test {
namespace {

using ::testing::HasSubstr;

class SecretFile : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& content) {
    std::ofstream(file_) << content;
    chmod(file_.c_str(), 0600);
    return file_;
  }
  std::string error_of(const std::filesystem::path& file) {
    try {
      read_secret_file(file, logger_);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  }

  const testing::TemporaryFolder folder_;
  const std::filesystem::path file_ = folder_.path() / "secret";
  std::ostringstream log_;
  Logger logger_{"test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_)};
};

TEST_F(SecretFile, IsReadWithoutWhiteSpaceAtItsEnds) {
  const auto secret = read_secret_file(write(" \n0123456789abcdef 0\r\n"), logger_);
  EXPECT_EQ(secret.text, "0123456789abcdef 0");
  EXPECT_EQ(secret.source, world::RunSecret::Source::kFile);
  EXPECT_EQ(log_.str(), "");
}

TEST_F(SecretFile, IsRefused) {
  const auto name = "distributed.secret_file " + file_.string();
  EXPECT_THAT(error_of(file_), HasSubstr(name + ": cannot be read: No such file or directory"));
  EXPECT_THAT(error_of(write("  0123456789abcde\n")), HasSubstr(name + ": the secret has fewer than 16 characters"));
  EXPECT_THAT(error_of(write("\n")), HasSubstr("fewer than 16 characters"));
  EXPECT_THAT(error_of(write(std::string(4097, 'x'))), HasSubstr("the file is longer than 4096 bytes"));
  EXPECT_THAT(error_of(folder_.path()), HasSubstr("not a regular file"));
  const auto fifo = folder_.path() / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(error_of(fifo), HasSubstr("not a regular file"));
}

TEST_F(SecretFile, OthersWhoMayReadItAreReported) {
  chmod(write("0123456789abcdef").c_str(), 0640);
  read_secret_file(file_, logger_);
  EXPECT_THAT(log_.str(), HasSubstr("can be read by other users of this host; run chmod 600 on it"));
}

}  // namespace
}  // namespace trainer::distributed::test
