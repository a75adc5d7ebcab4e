// Files with small changes are read or refused with a CheckpointError, and never crash the reader. tests/fuzz tries more changes.

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "checkpoint/read_file.h"
#include "tests/testing/trees.h"
#include "tests/unit/checkpoint/files.h"
#include "trainer/torch.h"

namespace trainer::checkpoint {
namespace {

using little_endian::append;

// A description of the tree, or "" if the file is refused.
template <typename Read>
std::string read_or_refuse(const std::string& content, const Read& read) {
  try {
    return testing::describe(read(as_bytes(content)));
  } catch (const CheckpointError&) {
    return "";
  }
}

const auto kReadTorchZip = [](std::span<const uint8_t> bytes) { return read_pytorch_file(bytes, "a.pt"); };
const auto kReadLegacyFile = [](std::span<const uint8_t> bytes) { return read_legacy_file(bytes, "a.pt"); };
const auto kReadSafetensors = [](std::span<const uint8_t> bytes) { return state::Tree(read_safetensors(bytes, "a.safetensors").tensors); };

std::string small_pytorch_file() {
  state::Dict tree;
  const auto memory = torch::arange(6);
  tree.add("a", memory);
  tree.add("b", memory.slice(0, 2, 4));
  tree.add("c", state::List{1, 2.5, "text", true});
  return write(state::Tree(tree));
}

TEST(Mutation, AFlippedBitOfAnArchiveIsRefusedOrChangesNothing) {
  for (const auto& file : {small_pytorch_file(), read_corpus("pytorch_file/torch_save.pt")}) {
    const auto whole = read_or_refuse(file, kReadTorchZip);
    ASSERT_NE(whole, "");
    for (size_t i = 0; i < file.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        auto flipped = file;
        flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
        const auto tree = read_or_refuse(flipped, kReadTorchZip);
        ASSERT_TRUE(tree.empty() || tree == whole) << "bit " << bit << " of byte " << i;
      }
    }
  }
}

TEST(Mutation, ATruncatedFileIsRefused) {
  for (const auto& file : {small_pytorch_file(), read_corpus("pytorch_file/torch_save.pt")}) {
    for (size_t size = 0; size < file.size(); ++size) ASSERT_EQ(read_or_refuse(file.substr(0, size), kReadTorchZip), "") << size;
  }
  for (const auto* name : {"pytorch_file/legacy.pt", "pytorch_file/legacy_python2.pt"}) {
    const auto file = read_corpus(name);
    ASSERT_NE(read_or_refuse(file, kReadLegacyFile), "");
    for (size_t size = kLegacyMagic.size(); size < file.size(); ++size) {
      ASSERT_EQ(read_or_refuse(file.substr(0, size), kReadLegacyFile), "") << size;
    }
  }
  const auto file = read_corpus("safetensors/python.safetensors");
  ASSERT_NE(read_or_refuse(file, kReadSafetensors), "");
  for (size_t size = 0; size < file.size(); ++size) ASSERT_EQ(read_or_refuse(file.substr(0, size), kReadSafetensors), "") << size;
}

// Any exception other than a CheckpointError fails the test. The format has no checksums, so a changed file may be read with other values.
TEST(Mutation, AFlippedBitOfALegacyFileIsReadOrRefused) {
  for (const auto* name : {"pytorch_file/legacy.pt", "pytorch_file/legacy_python2.pt"}) {
    const auto file = read_corpus(name);
    for (size_t i = kLegacyMagic.size(); i < file.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        auto flipped = file;
        flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
        read_or_refuse(flipped, kReadLegacyFile);
      }
    }
  }
}

// Any exception other than a CheckpointError fails the test. A wrong checksum would hide most changes of a program, so it is updated after
// each change.
TEST(Mutation, AChangedByteOfAProgramOrHeaderIsReadOrRefused) {
  const auto program = read_corpus("pytorch_file/torch_save.pkl");
  const auto header = read_corpus("safetensors/header.json");
  for (const auto* value : {"\x00", "\x01", "\x7f", "\xff", "(", "R", "t", "9", "\""}) {
    const std::string_view byte(value, 1);
    for (size_t i = 0; i < program.size(); ++i) {
      read_or_refuse(make_zip({{"data.pkl", replaced(program, i, byte)},
                               {"version", "3"},
                               {"data/0", std::string(24, '\1')},
                               {"data/1", std::string(12, '\1')},
                               {"data/2", std::string(6, '\1')},
                               {"data/3", ""}}),
                     kReadTorchZip);
    }
    for (size_t i = 0; i < header.size(); ++i) {
      std::string file;
      append(file, uint64_t{header.size()});
      read_or_refuse(file + replaced(header, i, byte) + std::string(64, '\1'), kReadSafetensors);
    }
  }
}

}  // namespace
}  // namespace trainer::checkpoint
