#include "base/written_files.h"

#include <gmock/gmock.h>

#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/metric_order.h"
#include "tests/testing/temporary_folder.h"

namespace trainer {
namespace {

TEST(WrittenFiles, AreKnownAgainFromTheirList) {
  const testing::TemporaryFolder folder;
  const auto list = folder.path() / ".list";
  ASSERT_FALSE(WrittenFiles::create(list, {"a/1.pt"}));
  {
    WrittenFiles files(list);
    files.add(folder.path() / "a" / "2.pt");
    files.add(folder.path() / "a" / "2.pt");
  }
  ASSERT_FALSE(WrittenFiles::create(list));  // nothing is lost
  const WrittenFiles files(list);
  EXPECT_THAT(files.files(), ::testing::ElementsAre(folder.path() / "a/1.pt", folder.path() / "a/2.pt"));
  EXPECT_TRUE(files.contains(folder.path() / "a" / "2.pt"));
  EXPECT_FALSE(files.contains(folder.path() / "2.pt"));
  EXPECT_EQ(read_file(list), "trainer run directory, format 1\na/1.pt\na/2.pt\n");
}

TEST(WrittenFiles, AListOfAnotherFormatIsRefused) {
  const testing::TemporaryFolder folder;
  const auto list = folder.path() / ".list";
  std::ofstream(list) << "trainer run directory, format 2\n";
  try {
    const WrittenFiles files(list);
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.what(), list.string() +
                                ": it begins with \"trainer run directory, format 2\", but this program writes \"trainer run directory, "
                                "format 1\"; use the version of the program that wrote this folder, or another folder");
  }
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
