#include "base/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

TEST(FindProgram, OnlyInAbsoluteFoldersOfPath) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "trainer_test_program";
  std::ofstream(file) << "#!/bin/sh\n";
  ASSERT_EQ(::chmod(file.c_str(), 0755), 0);
  const std::string path = std::getenv("PATH");
  const auto before = fs::current_path();
  fs::current_path(folder.path());
  for (const char* relative : {"", ":/bin", "/bin:", "/bin::/usr/bin", ".", "./", "../"}) {
    ::setenv("PATH", relative, 1);
    EXPECT_THAT([] { find_program("trainer_test_program"); }, ::testing::ThrowsMessage<Error>("it is not in any absolute folder of PATH"))
        << relative;
  }
  ::setenv("PATH", (":.:" + folder.path().string()).c_str(), 1);
  EXPECT_EQ(find_program("trainer_test_program"), file);
  EXPECT_EQ(find_program("./trainer_test_program"), "./trainer_test_program");
  fs::current_path(before);
  ::setenv("PATH", path.c_str(), 1);
}

}  // namespace
}  // namespace trainer
