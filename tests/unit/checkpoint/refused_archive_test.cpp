// Errors for archives that differ from those that PyTorch writes.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/bytes.h"
#include "checkpoint/pickler.h"
#include "tests/unit/checkpoint/files.h"
#include "trainer/torch.h"

namespace trainer::checkpoint {
namespace {

using little_endian::append;

using ::testing::HasSubstr;
using ::testing::StartsWith;

class RefusedArchive : public ::testing::Test {
 protected:
  static constexpr size_t kEndSize = 22;

  static std::string damaged(const std::string& what) { return "a.pt: " + what + kDamaged; }
  // The offset of the central directory.
  size_t directory() const { return file_.find("PK\1\2"); }

  static std::string make_file() {
    const state::Tree tree = state::List{torch::arange(3, torch::kInt32)};
    const auto [program, storages] = pickle(tree);
    return make_zip(
        {{"data.pkl", program}, {"data/0", {static_cast<const char*>(storages[0].data), storages[0].size}}, {"version", "3\n"}});
  }

  std::string file_ = make_file();
};

TEST_F(RefusedArchive, Truncated) {
  const auto message = damaged("the end of the file is missing");
  EXPECT_EQ(pytorch_file_refusal(file_.substr(0, file_.size() / 2)), message);
  EXPECT_EQ(pytorch_file_refusal(file_.substr(0, file_.size() - 1)), message);
  EXPECT_EQ(pytorch_file_refusal("PK"), message);
  EXPECT_EQ(pytorch_file_refusal(""), message);
}

TEST_F(RefusedArchive, WithAWrongEndRecord) {
  const auto end = file_.size() - kEndSize;
  const auto no_sense = damaged("the record at its end is not valid: it describes an archive with a comment or in several parts");
  EXPECT_EQ(pytorch_file_refusal(replaced(file_, end + 4, "\1")), no_sense);
  EXPECT_EQ(pytorch_file_refusal(replaced(file_, end + 8, "\1")), no_sense);
  EXPECT_EQ(pytorch_file_refusal(replaced(file_, end + 20, "\1")), no_sense);
  EXPECT_THAT(pytorch_file_refusal(replaced(file_, end + 16, std::string(4, '\xff'))), StartsWith("a.pt: its directory has "));
  const auto one_less = std::string("\2\0\2", 3);
  EXPECT_EQ(pytorch_file_refusal(replaced(file_, end + 8, one_less)), damaged("its directory has 61 bytes after its last entry"));
  const auto many = std::string(4, '\xfe');
  EXPECT_THAT(pytorch_file_refusal(replaced(file_, end + 8, many)), StartsWith("a.pt: 65278 entries do not fit into its directory of "));
}

TEST_F(RefusedArchive, OfPythonWithAWrongEndRecord) {
  const auto file = read_corpus("pytorch_file/torch_save.pt");
  const auto locator = file.size() - kEndSize - 20;
  const auto message = damaged("the two records at its end contradict each other");
  EXPECT_EQ(pytorch_file_refusal(replaced(file, locator + 8, "\1")), message);
  EXPECT_EQ(pytorch_file_refusal(replaced(file, locator - 56, "\1")), message);
  EXPECT_EQ(pytorch_file_refusal(replaced(file, locator - 56 + 24, "\1")), message);
  EXPECT_EQ(pytorch_file_refusal(replaced(file, file.size() - 6, "\1")), message);
}

TEST_F(RefusedArchive, WithAWrongDirectory) {
  const auto first = directory();
  EXPECT_EQ(pytorch_file_refusal(replaced(file_, first, "X")), damaged("entry 0 of its directory is not a valid entry"));
  EXPECT_EQ(pytorch_file_refusal(replaced(file_, first + 33, "\xff")), damaged("entry 0 of its directory is longer than the directory"));
  EXPECT_EQ(pytorch_file_refusal(replaced(file_, first + 34, "\1")),
            damaged("entry \"archive/data.pkl\" has no valid size or offset in the directory"));
  EXPECT_EQ(pytorch_file_refusal(replaced(file_, first + 42, std::string(4, '\xff'))),
            damaged("entry \"archive/data.pkl\" has no valid size or offset in the directory"));
  EXPECT_THAT(pytorch_file_refusal(replaced(file_, first + 45, "\x10")),
              StartsWith("a.pt: entry \"archive/data.pkl\" has 141 bytes from byte 268435456 on, which overlap the archive's directory or "
                         "are beyond it; "));
  EXPECT_EQ(pytorch_file_refusal(replaced(file_, first + 42, "\1")),
            damaged("entry \"archive/data.pkl\" is not at byte 1, where the directory places it"));
}

TEST_F(RefusedArchive, WithHeadersThatDisagree) {
  const auto message = damaged("entry \"archive/data.pkl\" has a local header that contradicts the directory");
  // Flags, method, checksum and the two sizes.
  for (const size_t field : {6U, 8U, 14U, 18U, 22U}) EXPECT_EQ(pytorch_file_refusal(replaced(file_, field, "\x44")), message) << field;
  EXPECT_EQ(pytorch_file_refusal(replaced(file_, "archive/data.pkl", "archive/data.pkx")), message);
}

TEST_F(RefusedArchive, OfPythonWithAWrongDescriptor) {
  const auto file = read_corpus("pytorch_file/torch_save.pt");
  const auto descriptor = file.find("PK\7\10");
  for (const size_t field : {0U, 4U, 8U, 12U}) {
    EXPECT_EQ(pytorch_file_refusal(replaced(file, descriptor + field, "\x7f")),
              damaged("entry \"torch_save/data.pkl\" has a data descriptor that contradicts the directory"));
  }
}

TEST_F(RefusedArchive, WithChangedBytes) {
  const auto values = file_.find(std::string_view("\0\0\0\0\1\0\0\0\2\0\0\0", 12));
  EXPECT_EQ(
      pytorch_file_refusal(replaced(file_, values + 4, "\3")),
      damaged(fmt::format("entry \"archive/data/0\" has changed: the checksum of bytes {} to {} does not match", values, values + 12)));
  EXPECT_THAT(pytorch_file_refusal(replaced(file_, "IntStorage", "IxtStorage")),
              StartsWith("a.pt: entry \"archive/data.pkl\" has changed: the checksum of bytes 46 to "));
}

TEST_F(RefusedArchive, WithTwoOfOneName) {
  EXPECT_EQ(pytorch_file_refusal(make_zip({{"data.pkl", "1"}, {"data.pkl", "1"}})), damaged("entry \"archive/data.pkl\" occurs twice"));
}

// The second entry's header is inside the content of the first entry, so the same bytes would be read twice.
TEST_F(RefusedArchive, WithOverlappingEntries) {
  const auto inner = make_zip({{"inner", "abc"}});
  auto file = make_zip({{"outer", inner}, {"inner", "abc"}});
  const auto inner_header = file.find(inner);
  const auto last = file.rfind("PK\1\2");
  std::string offset;
  append(offset, static_cast<uint32_t>(inner_header));
  EXPECT_EQ(pytorch_file_refusal(replaced(file, last + 42, offset)), damaged("entry \"archive/inner\" overlaps \"archive/outer\""));
}

TEST_F(RefusedArchive, CompressedToMuchLessThanItsContent) {
  EXPECT_THAT(pytorch_file_refusal(read_corpus("pytorch_file/deflated_zeros.pt")),
              HasSubstr(" of memory, which is too much for a file of its size"));
}

TEST_F(RefusedArchive, CompressedOrEncrypted) {
  const auto with = [&](size_t in_local, size_t in_central, char value) {
    const std::string bytes(1, value);
    return pytorch_file_refusal(replaced(replaced(file_, in_local, bytes), directory() + in_central, bytes));
  };
  const std::string cure = "; unpack the archive and give the file that torch.save wrote";
  EXPECT_EQ(with(8, 10, '\10'), damaged("entry \"archive/data.pkl\" cannot be decompressed to 141 bytes"));
  EXPECT_EQ(with(8, 10, '\14'), "a.pt: entry \"archive/data.pkl\" is compressed with method 12 of zip, not 8 (deflate)" + cure);
  EXPECT_EQ(with(6, 8, '\1'), "a.pt: entry \"archive/data.pkl\" is encrypted" + cure);
}

TEST_F(RefusedArchive, OfAnotherProgram) {
  EXPECT_EQ(pytorch_file_refusal(make_zip({{"word/document.xml", "<xml/>"}})),
            "a.pt: is a zip archive, but not a PyTorch file: it does not contain data.pkl; give a file that torch.save wrote");
  EXPECT_EQ(pytorch_file_refusal(make_zip({})),
            "a.pt: is a zip archive, but not a PyTorch file: it does not contain data.pkl; give a file that torch.save wrote");
  const std::string script =
      "a.pt: is a TorchScript archive (written by torch.jit.save, or by torch::save in C++); save the module's state_dict with Python's "
      "torch.save";
  EXPECT_EQ(pytorch_file_refusal(make_zip({{"data.pkl", ""}, {"constants.pkl", ""}})), script);
  EXPECT_EQ(pytorch_file_refusal(make_zip({{"code/__torch__.py", ""}, {"data.pkl", ""}})), script);
}

TEST_F(RefusedArchive, OfAnotherVersionOrByteOrder) {
  EXPECT_EQ(pytorch_file_refusal(make_zip({{"data.pkl", ""}, {"byteorder", "big"}})),
            "a.pt: contains numbers in the byte order \"big\", not \"little\"; load and save it again on an x86 or ARM machine");
  EXPECT_EQ(pytorch_file_refusal(make_zip({{"data.pkl", ""}})), damaged("does not state the version of its format"));
  for (const auto* version : {"0", "11", "x", "3x"}) {
    EXPECT_EQ(
        pytorch_file_refusal(make_zip({{"data.pkl", ""}, {"version", version}})),
        fmt::format("a.pt: has version \"{}\" of PyTorch's format; only 1 to 10 are supported; save it with an older PyTorch", version));
  }
}

}  // namespace
}  // namespace trainer::checkpoint
