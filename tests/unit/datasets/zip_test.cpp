#include <stdexcept>

#include "datasets/archive.h"
#include "tests/unit/datasets/fetch_archive.h"

namespace trainer::datasets::test {
namespace {

using ::testing::StartsWith;

std::span<const uint8_t> bytes_of(const std::string& text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

std::string content_of(const std::string& file, const ZipEntry& entry) {
  std::string content;
  read_zip_entry(bytes_of(file), entry, [&content](std::span<const uint8_t> part) { content.append(part.begin(), part.end()); });
  return content;
}

// The reason why the file or an entry in it cannot be read; empty if all can be read.
std::string zip_failure(const std::string& file) {
  try {
    for (const auto& entry : list_zip(bytes_of(file))) content_of(file, entry);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(Zip, IsRecognisedByItsFirstBytes) {
  EXPECT_TRUE(is_zip(bytes_of(zip({{"a", "1"}}))));
  EXPECT_TRUE(is_zip(bytes_of(zip({}))));
  EXPECT_FALSE(is_zip(bytes_of(tar_gz({{"a", "1"}}))));
  EXPECT_FALSE(is_zip({}));
}

TEST(Zip, ListsFilesAndFolders) {
  const auto file = zip({{"a/", "", AE_IFDIR}, {"a/b.txt", "text"}, {.path = "c", .content = "", .type = AE_IFLNK, .link = "a"}});
  const auto entries = list_zip(bytes_of(file));
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries[0].path, "a/");
  EXPECT_TRUE(entries[0].is_folder);
  EXPECT_EQ(entries[1].path, "a/b.txt");
  EXPECT_FALSE(entries[1].is_folder || entries[1].is_special || entries[1].is_encrypted);
  EXPECT_EQ(content_of(file, entries[1]), "text");
  EXPECT_TRUE(entries[2].is_special);
  EXPECT_TRUE(list_zip(bytes_of(zip({}))).empty());
}

TEST(Zip, MayHaveMoreEntriesThan65535) {
  std::vector<ArchiveEntry> entries;
  for (int i = 0; i < 66'000; ++i) entries.push_back({std::to_string(i), "x"});
  const auto file = zip(entries, "zip:compression=store");
  const auto list = list_zip(bytes_of(file));
  ASSERT_EQ(list.size(), entries.size());
  EXPECT_EQ(list.back().path, "65999");
  EXPECT_EQ(content_of(file, list.back()), "x");
}

TEST(Zip, ACommentMayFollow) {
  auto file = zip({{"a", "1"}});
  file[file.size() - 2] = 7;
  EXPECT_EQ(zip_failure(file + "comment"), "");
}

// The sizes and the offset of an entry are in its zip64 field. The record at the end of the file refers to the zip64 record, which has the
// offset of the directory.
TEST(Zip, SizesMayBeInTheZip64Field) {
  const auto number = [](uint64_t value, int size) {
    std::string text;
    for (int i = 0; i < size; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
    return text;
  };
  const auto plain = zip({{"a", "content"}}, "zip:compression=store");
  const auto entry = list_zip(bytes_of(plain)).at(0);
  const auto directory = plain.find("PK\x01\x02");
  const auto name = directory + 46;
  // The directory entry has its sizes and its offset in an extra field.
  auto header = plain.substr(directory, 46);
  header.replace(20, 8, number(~uint64_t{0}, 8));
  header.replace(30, 2, number(4 + 4 + 24 + 4, 2));
  header.replace(42, 4, number(~uint64_t{0}, 4));
  const auto extra = number(0x9999, 2) + number(4, 2) + "skip" + number(1, 2) + number(24, 2) + number(entry.num_bytes, 8) +
                     number(entry.compressed_bytes, 8) + number(entry.offset, 8);
  auto file = plain.substr(0, directory) + header + plain.substr(name, 1) + extra;
  const auto end64 = file.size();
  file += "PK\x06\x06" + number(44, 8) + number(45, 2) + number(45, 2) + number(0, 8) + number(1, 8) + number(1, 8) +
          number(end64 - directory, 8) + number(directory, 8);
  file += "PK\x06\x07" + number(0, 4) + number(end64, 8) + number(1, 4);
  file += "PK\x05\x06" + number(0, 4) + number(0xffff, 2) + number(0xffff, 2) + number(~uint64_t{0}, 8) + number(0, 2);
  const auto entries = list_zip(bytes_of(file));
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(content_of(file, entries[0]), "content");
}

TEST(Zip, DamageIsAnErrorWithItsReason) {
  const auto file = zip({{"a.txt", std::string(300, 'x')}, {"b", random_bytes(50)}}, "zip:compression=store");
  EXPECT_EQ(zip_failure(file), "");
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_THAT(zip_failure(file.substr(0, size)), StartsWith("the archive cannot be unpacked: ")) << size;
  }
  // Whichever byte is changed, nothing may be read beyond the end of the file, which the sanitizers check. Some changes, such as that of a
  // date, have no effect.
  const auto deflated = zip({{"a.txt", std::string(300, 'x')}, {"b", random_bytes(50)}});
  for (const auto& whole : {file, deflated}) {
    for (size_t i = 0; i < whole.size(); ++i) {
      for (const int value : {0x00, 0x01, 0x7f, 0xff}) {
        auto changed = whole;
        changed[i] = static_cast<char>(value);
        zip_failure(changed);
      }
    }
  }
  auto changed = file;
  changed[changed.find("PK\x01\x02") + 10] = 12;
  EXPECT_EQ(zip_failure(changed), "the archive cannot be unpacked: the entry \"a.txt\" has the unsupported compression method 12");
  changed = file;
  changed[changed.find("PK\x01\x02") + 8] |= 1;
  EXPECT_EQ(zip_failure(changed), "the archive cannot be unpacked: the entry \"a.txt\" is encrypted");
}

}  // namespace
}  // namespace trainer::datasets::test
