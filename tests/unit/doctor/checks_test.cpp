#include "commands/doctor/checks.h"

#include <gmock/gmock.h>

#include <future>

#include "commands/doctor/read_host.h"
#include "tests/testing/file_size_limit.h"
#include "tests/testing/finding.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer::doctor {
namespace {

using ::testing::ElementsAre;

std::promise<void> release;

TEST(Checks, OneThatHangsHasAFinding) {
  const Check hanging{"a file", std::chrono::milliseconds(20), [](const Subject&) {
                        release.get_future().wait();
                        return std::vector<Finding>{};
                      }};
  EXPECT_THAT(run(hanging, {}), ElementsAre(IsFailed("no result within 0.0s", "that does not respond")));
  release.set_value();
}

TEST(Checks, AnExceptionIsAFinding) {
  const Check throwing{"a file", std::chrono::seconds(10), [](const Subject&) -> std::vector<Finding> { throw Error("too many files"); }};
  EXPECT_THAT(run(throwing, {}), ElementsAre(IsFailed("too many files", "fix the problem that the message names")));
}

TEST(ReadDisk, AFolderThatDoesNotExistIsNotMade) {
  const testing::TemporaryFolder folder;
  const auto disk = read_disk(folder.path() / "runs" / "x");
  EXPECT_EQ(disk.problem, "");
  EXPECT_EQ(disk.missing, "");
  EXPECT_EQ(disk.folder, folder.path().string());
  EXPECT_GT(disk.bytes_per_second, 0);
  EXPECT_GT(disk.free, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(ReadDisk, AFolderThatRefusesFiles) {
  EXPECT_THAT(read_disk("/proc/self").problem, ::testing::HasSubstr("no file can be written in /proc/self: "));
}

TEST(ReadDisk, AFullDisk) {
  const testing::TemporaryFolder folder;
  const testing::FileSizeLimit limit(1 << 20);
  EXPECT_EQ(read_disk(folder.path()).problem, "cannot write 32 MiB in " + folder.path().string() + ": File too large");
}

TEST(ReadDisk, ALimitOfFileSizes) {
  const testing::TemporaryFolder folder;
  EXPECT_EQ(read_disk(folder.path()).missing, "");
  const testing::FileSizeLimit limit(40 << 20);
  EXPECT_EQ(read_disk(folder.path()).missing, "files of more than 40.0 MiB (ulimit -f, or FAT)");
}

TEST(ReadHost, Memory) {
  const auto memory = read_memory();
  EXPECT_GT(memory.total, memory.available);
  EXPECT_GT(memory.available, 0);
}

}  // namespace
}  // namespace trainer::doctor
