#include "base/written_files.h"

#include <gmock/gmock.h>

#include <fstream>
#include <limits>

#include "base/metric_order.h"
#include "tests/testing/file_size_limit.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer {
namespace {

TEST(WrittenFiles, AreKnownAgainFromTheirList) {
  const testing::TemporaryFolder folder;
  const auto list = folder.path() / ".list";
  ASSERT_FALSE(WrittenFiles::create(list));
  {
    WrittenFiles files(list);
    files.add(folder.path() / "a" / "1.pt");
    files.add(folder.path() / "a" / "2.pt");
    files.add(folder.path() / "a" / "2.pt");
  }
  ASSERT_FALSE(WrittenFiles::create(list));  // the existing list is kept
  const WrittenFiles files(list);
  EXPECT_THAT(files.files(), ::testing::ElementsAre(folder.path() / "a/1.pt", folder.path() / "a/2.pt"));
  EXPECT_TRUE(files.contains(folder.path() / "a" / "2.pt"));
  EXPECT_FALSE(files.contains(folder.path() / "2.pt"));
  EXPECT_EQ(read_file(list), "trainer run directory, format 1\na/1.pt\na/2.pt\n");
}

std::string refusal_of_list(const std::filesystem::path& list) {
  try {
    const WrittenFiles files(list);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "read";
}

TEST(WrittenFiles, AListOfAnotherFormatIsRefused) {
  const testing::TemporaryFolder folder;
  const auto list = folder.path() / ".list";
  std::ofstream(list) << "trainer run directory, format 2\n";
  EXPECT_EQ(refusal_of_list(list),
            list.string() +
                ": it begins with \"trainer run directory, format 2\", but this program writes \"trainer run directory, "
                "format 1\"; use the version of the program that wrote this folder, or another folder");
}

TEST(WrittenFiles, AListThatNamesAFileOutsideOfItsFolderIsRefused) {
  const testing::TemporaryFolder folder;
  const auto list = folder.path() / ".list";
  for (const std::string name : {"/home/somebody/a.pt", "../a.pt", "a/../../a.pt", ".."}) {
    std::ofstream(list) << "trainer run directory, format 1\nconfig.yaml\n" << name << "\n";
    EXPECT_EQ(refusal_of_list(list), list.string() + ": the line \"" + name +
                                         "\" names a file outside of this folder, which this program never writes; remove the line, or use "
                                         "another folder");
  }
  std::ofstream(list) << "trainer run directory, format 1\na/..pt\n";
  EXPECT_EQ(refusal_of_list(list), "read");
}

TEST(WrittenFiles, AListThatCannotBeWrittenIsNotLeftBehind) {
  const testing::TemporaryFolder folder;
  const auto list = folder.path() / ".list";
  {
    const testing::FileSizeLimit full(10);
    EXPECT_EQ(WrittenFiles::create(list), std::errc::file_too_large);
  }
  EXPECT_FALSE(std::filesystem::exists(list));
}

// The list is empty if a process was killed before it wrote the first line.
TEST(WrittenFiles, AnEmptyListGetsItsFirstLineAgain) {
  const testing::TemporaryFolder folder;
  const auto list = folder.path() / ".list";
  std::ofstream(list).close();
  {
    WrittenFiles files(list);
    files.add(folder.path() / "a");
    files.add(folder.path() / "b");
    files.flush();
  }
  EXPECT_EQ(read_file(list), "trainer run directory, format 1\na\nb\n");
  const WrittenFiles files(list);
  EXPECT_TRUE(files.contains(folder.path() / "a"));
  std::filesystem::remove(list);
  std::filesystem::create_directory(list);
  EXPECT_THAT([&] { files.flush(); }, ::testing::ThrowsMessage<Error>(::testing::HasSubstr(".list: it is a folder, not a regular file")));
}

TEST(IsBetter, ValuesThatAreNotFiniteAreNeverBetter) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const bool higher_is_better : {false, true}) {
    for (const double value : {kNaN, kInfinity, -kInfinity}) {
      EXPECT_FALSE(is_better(value, std::nullopt, higher_is_better));
      EXPECT_FALSE(is_better(value, 1, higher_is_better));
      EXPECT_TRUE(is_better(1, value, higher_is_better, 0.5));
    }
    EXPECT_TRUE(is_better(1, std::nullopt, higher_is_better, 0.5));
    EXPECT_FALSE(is_better(1, 1, higher_is_better));
    EXPECT_EQ(is_better(2, 1, higher_is_better), higher_is_better);
    EXPECT_EQ(is_better(1, 2, higher_is_better), !higher_is_better);
    EXPECT_FALSE(is_better(2, 1, higher_is_better, 1));
  }
}

}  // namespace
}  // namespace trainer
