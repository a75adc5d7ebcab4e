#include <gmock/gmock.h>

#include "checkpoint/read_file.h"
#include "tests/testing/trees.h"
#include "tests/unit/checkpoint/files.h"

namespace trainer::checkpoint {
namespace {

using namespace std::string_literals;

// The pickle programs and the storages of a file.
struct LegacyParts {
  std::string magic = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s;
  std::string version = "\x80\x02M\xe9\x03."s;
  std::string system = "\x80\x02}" + text("little_endian") + "\x88s.";
  std::string object;
  std::string keys;
  std::string storages;

  std::string join() const { return magic + version + system + object + keys + storages; }
};

// A tensor of two numbers, all of this storage; `view`: the instructions of the last part of the reference to the storage.
std::string pair_of(const std::string& key, const std::string& type = "FloatStorage", const std::string& view = "N",
                    const std::string& num_elements = "K\2") {
  return "ctorch._utils\n_rebuild_tensor\n((" + text("storage") + "ctorch\n" + type + "\n" + text(key) + text("cpu") + num_elements + view +
         "tQK\0K\2\x85K\1\x85tR"s;
}

std::string list_of(const std::string& elements) { return "\x80\x02](" + elements + "e."; }

std::string storage_of(uint64_t num_elements, const std::string& content) {
  std::string bytes;
  little_endian::append(bytes, num_elements);
  return bytes + content;
}

LegacyParts two_storages() {
  return {.object = list_of(pair_of("7") + pair_of("8", "HalfStorage") + pair_of("7")),
          .keys = list_of(text("7") + text("8")),
          .storages = storage_of(2, "\0\0\x80\x3f\0\0\0\x40"s) + storage_of(2, "\0\x3c\0\x40"s)};
}

std::string legacy_refusal(const LegacyParts& parts) {
  return refusal([&] { read_any(as_bytes(parts.join()), "a.pt"); });
}

TEST(LegacyFile, EqualsTheArchiveOfTheSameObject) {
  const auto read = [](const char* name) { return testing::describe(read_any(as_bytes(read_corpus(name)), name)); };
  EXPECT_EQ(read("pytorch_file/legacy.pt"), read("pytorch_file/torch_save.pt"));
}

TEST(LegacyFile, TensorsShareAStorage) {
  const auto tree = read_any(as_bytes(two_storages().join()), "a.pt");
  const auto tensors = state::tensors_of(tree);
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_TRUE(tensors[0].equal(torch::tensor({1.0F, 2.0F})));
  EXPECT_TRUE(tensors[1].equal(torch::tensor({1.0, 2.0}, torch::kHalf)));
  EXPECT_EQ(tensors[0].data_ptr(), tensors[2].data_ptr());
}

TEST(LegacyFile, OtherVersionsAndByteOrdersAreRefused) {
  auto parts = two_storages();
  parts.version = "\x80\x02M\xea\x03.";
  EXPECT_EQ(legacy_refusal(parts), "a.pt: is not of version 1001 of its format" + std::string(kDamaged));
  parts = two_storages();
  parts.system = "\x80\x02}" + text("little_endian") + "\x89s.";
  EXPECT_EQ(legacy_refusal(parts), "a.pt: holds numbers in the byte order \"big\"; load and save it again on an x86 or ARM machine");
  parts.system = "\x80\x02}.";
  EXPECT_EQ(legacy_refusal(parts), "a.pt: does not tell its byte order" + std::string(kDamaged));
}

TEST(LegacyFile, StoragesAreListedOnceEach) {
  auto parts = two_storages();
  parts.keys = list_of(text("7"));
  parts.storages = parts.storages.substr(0, 16);
  EXPECT_EQ(legacy_refusal(parts), "a.pt: does not list storage \"8\", which a tensor needs" + std::string(kDamaged));
  parts.keys = list_of(text("7") + text("7"));
  EXPECT_EQ(legacy_refusal(parts), "a.pt: lists storage \"7\" twice" + std::string(kDamaged));
  for (const auto& key : {text("9"), "K\7"s}) {
    parts.keys = list_of(key);
    EXPECT_EQ(legacy_refusal(parts), "a.pt: lists a storage that no tensor needs" + std::string(kDamaged));
  }
  parts.keys = "\x80\x02N.";
  EXPECT_EQ(legacy_refusal(parts), "a.pt: has no list of its storages" + std::string(kDamaged));
}

TEST(LegacyFile, StoragesHaveTheirSizes) {
  const auto whole = two_storages();
  auto parts = whole;
  parts.storages[0] = 3;
  EXPECT_EQ(legacy_refusal(parts), "a.pt: holds 3 elements of storage \"7\", but a tensor needs 2" + std::string(kDamaged));
  parts.storages = whole.storages.substr(0, 15);
  EXPECT_EQ(legacy_refusal(parts), "a.pt: ends in storage \"7\"" + std::string(kDamaged));
  parts.storages = whole.storages + "1";
  EXPECT_EQ(legacy_refusal(parts), "a.pt: has 1 byte after its last storage" + std::string(kDamaged));
  parts.object = list_of(pair_of("7") + pair_of("7", "HalfStorage"));
  EXPECT_EQ(legacy_refusal(parts), "a.pt: refers to storage \"7\" with 8 and with 4 bytes" + std::string(kDamaged));
  parts.object = list_of(pair_of("7", "FloatStorage", "N", "J\xff\xff\xff\x7f"));
  EXPECT_EQ(legacy_refusal(parts), "a.pt: has fewer bytes than its storages need" + std::string(kDamaged));
}

TEST(LegacyFile, PartsOfStoragesAreRefused) {
  auto parts = two_storages();
  parts.object = list_of(pair_of("7", "FloatStorage", text("9") + "K\0K\1\x87"s));
  EXPECT_THAT(legacy_refusal(parts), ::testing::HasSubstr(": refers to a part of a storage, as only PyTorch before 1.0 does; save a"));
}

}  // namespace
}  // namespace trainer::checkpoint
