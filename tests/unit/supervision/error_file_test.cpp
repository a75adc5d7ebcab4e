#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "distributed/supervision/failure.h"
#include "tests/testing/temporary_folder.h"

namespace trainer::supervision {
namespace {

int64_t now() { return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count(); }

struct Reply {
  std::string message;
  int64_t time = 0;  // seconds since 1970
};

Reply written(const std::string& text, ExitCode exit_code) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "error.json";
  write_error_file(file, text, exit_code);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  const auto reply = nlohmann::json::parse(read_file(file)).at("message");
  EXPECT_EQ(reply.at("message"), reply.at("extraInfo").at("py_callstack"));
  return {reply.at("message"), std::stoll(reply.at("extraInfo").at("timestamp").get<std::string>())};
}

TEST(ErrorFile, AnOwnFailureIsDatedNow) {
  const auto before = now();
  const auto reply = written("cannot read \"a\"\nline two \xff", ExitCode::kData);
  EXPECT_EQ(reply.message, "cannot read \"a\"\nline two \xef\xbf\xbd");
  EXPECT_GE(reply.time, before);
  EXPECT_LE(reply.time, now());
}

TEST(ErrorFile, AnotherRanksFailureIsDatedLater) {
  const auto before = now();
  EXPECT_GE(written("rank 1 ended; this rank exits", ExitCode::kPeer).time, before + 10);
  const auto silent = written("", ExitCode::kUsage);
  EXPECT_GE(silent.time, before + 10);
  EXPECT_EQ(silent.message, "rank 0 reports the reason");
}

TEST(ErrorFile, WithoutAFileNothingIsWritten) {
  write_error_file("", "text", ExitCode::kFailure);
  write_error_file("/no/such/folder/error.json", "text", ExitCode::kFailure);
  EXPECT_FALSE(std::filesystem::exists("/no/such/folder"));
}

}  // namespace
}  // namespace trainer::supervision
