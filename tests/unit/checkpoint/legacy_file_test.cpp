#include <fmt/format.h>
#include <gmock/gmock.h>

#include "checkpoint/read_file.h"
#include "tests/testing/trees.h"
#include "tests/unit/checkpoint/files.h"
#include "tests/unit/checkpoint/pickle_programs.h"
#include "trainer/state.h"
#include "trainer/torch.h"

namespace trainer::checkpoint {
namespace {

using ::testing::HasSubstr;

const std::string kVersion = "\x80\x02M\xe9\x03.";
const std::string kSystem = "\x80\x02}" + text("little_endian") + "\x88s.";

std::string beginning(const std::string& version = kVersion, const std::string& system = kSystem) {
  return std::string(kLegacyMagic) + version + system;
}

// Instructions for a tensor of the first `num_viewed` elements of an int32 storage of `num_elements`, or of its view `view`.
std::string tensor_of(const std::string& key, int64_t num_elements, const std::string& view = "N", int64_t num_viewed = 2) {
  return "ctorch._utils\n_rebuild_tensor\n((" + text("storage") + "ctorch\nIntStorage\n" + text(key) + text("cpu") + integer(num_elements) +
         view + "tQ" + integer(0) + tuple({num_viewed}) + tuple({1}) + "tR";
}

std::string view(int64_t first, int64_t count) { return "(" + text("view") + integer(first) + integer(count) + "t"; }

std::string list(std::initializer_list<std::string> elements) {
  std::string program = "](";
  for (const auto& element : elements) program += element;
  return program + "e.";
}

// The number of elements and the content of a storage of int32.
std::string numbers(std::initializer_list<uint32_t> values, uint64_t count) {
  std::string bytes;
  little_endian::append(bytes, count);
  for (const auto value : values) little_endian::append(bytes, value);
  return bytes;
}

const std::string kObject = list({tensor_of("a", 2), tensor_of("b", 2)});
const std::string kKeys = list({text("a"), text("b")});
const std::string kA = numbers({1, 2}, 2);
const std::string kB = numbers({3, 4}, 2);

state::Tree read(const std::string& content) { return read_legacy_file(as_bytes(content), "a.pt"); }
std::string legacy_refusal(const std::string& content) {
  return refusal([&] { read(content); });
}
// The refusal of a file with `rest` after the usual beginning.
std::string rest_refusal(const std::string& rest) { return legacy_refusal(beginning() + rest); }
std::string damaged(const std::string& what) { return "a.pt: " + what + kDamaged; }

TEST(LegacyFile, IsReadLikeTheZipFormat) {
  EXPECT_EQ(testing::describe(read(read_corpus("pytorch_file/legacy.pt"))),
            testing::describe(read_pytorch_file(as_bytes(read_corpus("pytorch_file/torch_save.pt")), "torch_save.pt")));
}

TEST(LegacyFile, ReadsFilesOfPython2) {
  const auto tree = read(read_corpus("pytorch_file/legacy_python2.pt"));
  const state::View view(tree, "legacy_python2.pt");
  const auto weight = view.at("model").at("weight").tensor();
  EXPECT_TRUE(weight.equal(torch::arange(6, torch::kFloat32).reshape({2, 3})));
  EXPECT_FALSE(weight.requires_grad());
  const auto part = view.at("model").at("part").tensor();
  EXPECT_TRUE(part.equal(torch::tensor({{2.0F, 4.0F}, {3.0F, 5.0F}})));
  EXPECT_EQ(part.storage().data(), weight.storage().data());
  EXPECT_EQ(part.storage_offset(), 2);
  EXPECT_EQ(view.at("text").text(), std::string(300, 'a'));
}

TEST(LegacyFile, ReadsStoragesInAnyOrder) {
  const auto tree = read(beginning() + kObject + list({text("b"), text("a")}) + kB + kA);
  EXPECT_TRUE(state::tensors_of(tree).at(0).equal(torch::tensor({1, 2}, torch::kInt32)));
  EXPECT_TRUE(state::tensors_of(tree).at(1).equal(torch::tensor({3, 4}, torch::kInt32)));
}

TEST(LegacyFile, OfAnotherVersionOrByteOrderIsRefused) {
  EXPECT_EQ(
      legacy_refusal(beginning("\x80\x02M\xea\x03.")),
      "a.pt: has version 1002 of PyTorch's legacy format; only version 1001 is supported; load it with the PyTorch that wrote it and save "
      "it with a newer one");
  EXPECT_EQ(legacy_refusal(beginning("N.")), damaged("does not state the version of its format"));
  EXPECT_EQ(legacy_refusal(beginning(kVersion, "}" + text("little_endian") + "\x89s.")),
            "a.pt: was written on a machine that is not little-endian; load and save it again on an x86 or ARM machine");
  for (const auto* system : {"N.", "}."}) {
    EXPECT_EQ(legacy_refusal(beginning(kVersion, system)), damaged("does not state the byte order of its numbers"));
  }
}

TEST(LegacyFile, OfCodeIsRefused) {
  const auto begin = beginning().size();
  EXPECT_EQ(rest_refusal("cposix\nsystem\n."),
            fmt::format("a.pt: pickle program at byte {}, byte 0: uses \"posix.system\", which is not plain data and is never executed; "
                        "save a dictionary of tensors, numbers, strings, lists and dictionaries with torch.save, such as a state_dict",
                        begin));
  EXPECT_EQ(rest_refusal("]"),
            fmt::format("a.pt: pickle program at byte {}, byte 1: ends in the middle of an instruction", begin) + kDamaged);
}

TEST(LegacyFile, WithOtherReferencesToStoragesIsRefused) {
  const auto refers = [](const std::string& view) { return rest_refusal(tensor_of("a", 2, view) + "." + std::string(100, ' ')); };
  EXPECT_THAT(refers(""), HasSubstr(": refers to an external object that is not a storage; "));
  EXPECT_THAT(refers(text("view")), HasSubstr(": refers to an external object that is not a storage; "));
  EXPECT_THAT(refers(tuple({1, 2})), HasSubstr(": refers to an external object that is not a storage; "));
  const auto beyond = [](const std::string& numbers) {
    return HasSubstr(": refers to a view that reaches beyond its storage (" + numbers + " of 2); ");
  };
  constexpr auto kMax = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(refers(view(1, 2)), beyond("first element 1, 2 elements"));
  EXPECT_THAT(refers(view(3, 0)), beyond("first element 3, 0 elements"));
  EXPECT_THAT(refers(view(-1, 2)), beyond("first element -1, 2 elements"));
  EXPECT_THAT(refers(view(0, -1)), beyond("first element 0, -1 elements"));
  EXPECT_THAT(refers(view(1, kMax)), beyond(fmt::format("first element 1, {} elements", kMax)));
  // The tensor must also be inside the view.
  EXPECT_THAT(refers(view(1, 1)), HasSubstr("reaches beyond its storage (offset 0, sizes [2], strides [1], 1 elements)"));
  const auto bytes = "ctorch._utils\n_rebuild_tensor_v3\n((" + text("storage") + "ctorch.storage\nUntypedStorage\n" + text("a") +
                     text("cpu") + integer(8) + view(2, 4) + "tQ" + integer(0) + tuple({1}) + tuple({1}) + "\x89Nctorch\nint32\ntR.";
  EXPECT_THAT(rest_refusal(bytes), HasSubstr(": makes a tensor of int32 that begins within an element, at byte 2 of its storage; "));
}

TEST(LegacyFile, WithOtherStoragesIsRefused) {
  EXPECT_EQ(rest_refusal(kObject + "N."), damaged("does not contain a list of its storages"));
  EXPECT_EQ(rest_refusal(kObject + list({"K\1"}) + kA), damaged("lists a storage without its key"));
  EXPECT_EQ(rest_refusal(kObject + list({text("c")}) + kA + kB), damaged("contains storage \"c\", which no tensor needs"));
  EXPECT_EQ(rest_refusal(kObject + list({text("a"), text("a")}) + kA + kA), damaged("contains storage \"a\" twice"));
  EXPECT_EQ(rest_refusal(kObject + list({text("a")}) + kA), damaged("does not contain storage \"b\", which a tensor needs"));
  EXPECT_EQ(rest_refusal(kObject + kKeys + numbers({1, 2, 3}, 3) + kB),
            damaged("contains 3 elements of storage \"a\", but a tensor needs 2"));
  EXPECT_EQ(rest_refusal(kObject + kKeys + numbers({1}, 1) + kB), damaged("contains 1 elements of storage \"a\", but a tensor needs 2"));
  EXPECT_EQ(rest_refusal(kObject + kKeys + kA + kB + "0"), damaged("contains 1 bytes after its last storage"));
  EXPECT_EQ(rest_refusal(list({tensor_of("a", 2), tensor_of("a", 3)}) + kKeys + kA + kB),
            damaged("has tensors that need 8 bytes of storage \"a\", and others that need 12"));
}

TEST(LegacyFile, ThatIsCutOffIsRefused) {
  EXPECT_EQ(rest_refusal(kObject + kKeys + kA + kB.substr(0, 7)),
            damaged("is truncated: 7 bytes are left of the 8 that storage \"b\" needs"));
  EXPECT_EQ(rest_refusal(kObject + kKeys + kA + kB.substr(0, 11)),
            damaged("is truncated: 3 bytes are left of the 8 that storage \"b\" needs"));
  const auto half = static_cast<int64_t>(beginning().size() + kObject.size()) / 8;
  const auto object = list({tensor_of("a", half), tensor_of("b", half)});
  EXPECT_EQ(rest_refusal(object),
            damaged(fmt::format("is truncated: a tensor needs {} bytes of storage \"b\", but at most {} bytes are left for it", 4 * half,
                                object.size() - 4 * half)));
  EXPECT_THAT(rest_refusal(list({tensor_of("a", std::numeric_limits<int64_t>::max() / 4)})), HasSubstr("is truncated: a tensor needs "));
}

}  // namespace
}  // namespace trainer::checkpoint
