#include "base/zip.h"

#include <stdexcept>

#include "tests/unit/datasets/fetch_archive.h"

namespace trainer::datasets::test {
namespace {

std::span<const uint8_t> bytes_of(const std::string& text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

TEST(Zip, IsRecognisedByItsFirstBytes) {
  EXPECT_TRUE(is_zip(bytes_of(zip({{"a", "1"}}))));
  EXPECT_TRUE(is_zip(bytes_of(zip({}))));
  EXPECT_FALSE(is_zip(bytes_of(tar_gz({{"a", "1"}}))));
  EXPECT_FALSE(is_zip({}));
}

TEST(Zip, ListsFilesAndFolders) {
  const auto file = zip({{"a/", "", AE_IFDIR}, {"a/b.txt", "text"}, {.path = "c", .content = "", .type = AE_IFLNK, .link = "a"}});
  const ZipDirectory directory(bytes_of(file));
  const auto& entries = directory.entries();
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries[0].name, "a/");
  EXPECT_EQ(entries[1].name, "a/b.txt");
  EXPECT_EQ(entries[1].num_content, 4U);
  EXPECT_FALSE(entries[0].is_special || entries[1].is_special || entries[1].is_encrypted());
  EXPECT_TRUE(entries[2].is_special);
}

TEST(Zip, MayHaveMoreEntriesThan65535) {
  std::vector<ArchiveEntry> entries;
  for (int i = 0; i < 66'000; ++i) entries.push_back({std::to_string(i), "x"});
  const auto file = zip(entries, "zip:compression=store");
  EXPECT_EQ(ZipDirectory(bytes_of(file)).entries().size(), entries.size());
}

// Whichever byte is changed, nothing may be read beyond the end of the file, which the sanitizers check.
TEST(Zip, DamageIsFoundOrChangesNothing) {
  const auto file = zip({{"a.txt", std::string(300, 'x')}, {"b", random_bytes(50)}}, "zip:compression=store");
  for (size_t size = 0; size < file.size(); ++size) EXPECT_THROW(ZipDirectory(bytes_of(file.substr(0, size))), std::runtime_error) << size;
  for (size_t i = 0; i < file.size(); ++i) {
    for (const int value : {0x00, 0x01, 0x7f, 0xff}) {
      auto changed = file;
      changed[i] = static_cast<char>(value);
      try {
        EXPECT_EQ(ZipDirectory(bytes_of(changed)).entries().size(), 2U);
      } catch (const std::runtime_error& reason) {
        EXPECT_STRNE(reason.what(), "");
      }
    }
  }
}

}  // namespace
}  // namespace trainer::datasets::test
