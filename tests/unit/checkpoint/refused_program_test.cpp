// Errors for pickle programs that do not create plain data.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/unit/checkpoint/files.h"
#include "tests/unit/checkpoint/pickle_programs.h"

namespace trainer::checkpoint {
namespace {

using ::testing::StartsWith;

std::string program_refusal(const std::string& program) { return pytorch_file_refusal(make_archive(program)); }

std::string truncated_at(size_t byte) {
  return fmt::format("a.pt: data.pkl, byte {}: ends in the middle of an instruction", byte) + kDamaged;
}

// The error about the instruction at that byte.
std::string at(size_t byte, const std::string& what) {
  return fmt::format(
      "a.pt: data.pkl, byte {}: {}; save a dictionary of tensors, numbers, strings, lists and dictionaries with torch.save, such as a "
      "state_dict",
      byte, what);
}

const std::string kHooks = "ccollections\nOrderedDict\n)R";

// Instructions for a tensor in the storage "0".
std::string tensor(int64_t num_elements, int64_t offset, std::initializer_list<int64_t> sizes, std::initializer_list<int64_t> strides) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\nFloatStorage\n" + text("0") + text("cpu") +
         integer(num_elements) + "tQ" + integer(offset) + tuple(sizes) + tuple(strides) + "\x89" + kHooks + "tR";
}

TEST(RefusedProgram, WouldExecuteCode) {
  const auto program =
      "\x80\x02"
      "cposix\nsystem\n" +
      text("rm -rf /") + "\x85R.";
  EXPECT_EQ(program_refusal(program), at(2, "uses \"posix.system\", which is not plain data and is never executed"));
  EXPECT_EQ(program_refusal("\x80\x02"
                            "cos\nsystem\n" +
                            text("true") + "\x85R."),
            at(2, "uses \"os.system\", which is not plain data and is never executed"));
  EXPECT_EQ(program_refusal("\x80\x02"
                            "c__builtin__\neval\n."),
            at(2, "uses \"__builtin__.eval\", which is not plain data and is never executed"));
  EXPECT_EQ(program_refusal("ctorch\nQInt8Storage\n."),
            at(0, "uses \"torch.QInt8Storage\", which is not plain data and is never executed"));
  // Whatever characters a name contains, the message is one printable line.
  EXPECT_THAT(program_refusal("c\x1b[2J\nevil\"\n."), StartsWith("a.pt: data.pkl, byte 0: uses \"\\x1b[2J.evil\\x22\", which"));
}

TEST(RefusedProgram, OfOtherInstructions) {
  EXPECT_EQ(program_refusal("\x80\x04."),
            "a.pt: data.pkl, byte 0: has pickle protocol 4, which only Python can read; save it again with torch.save without the argument "
            "pickle_protocol");
  EXPECT_EQ(program_refusal("\x80\x02\x81."), at(2, "contains the instruction 0x81, which torch.save does not write"));
  EXPECT_EQ(program_refusal(""), truncated_at(0));
  EXPECT_EQ(program_refusal("N"), truncated_at(1));
  EXPECT_EQ(program_refusal("X\xff\xff\xff\xff"
                            "a."),
            truncated_at(0));
  EXPECT_EQ(program_refusal("ctorch"), truncated_at(0));
  EXPECT_EQ(program_refusal("NN."), at(2, "ends with unused objects or marks on its stack"));
  EXPECT_EQ(program_refusal("(N."), at(2, "ends with unused objects or marks on its stack"));
  EXPECT_EQ(program_refusal("."), at(0, "pops an object from an empty stack"));
  EXPECT_EQ(program_refusal("N(\x85."), at(2, "pops an object from an empty stack"));
  EXPECT_EQ(program_refusal("Nt."), at(1, "pops objects up to a mark, but there is no mark"));
  EXPECT_EQ(program_refusal("h\x01."), at(0, "reads the object with index 1, which it has not stored"));
  EXPECT_EQ(program_refusal(std::string("NNq\1h\0.", 7)), at(4, "reads the object with index 0, which it has not stored"));
  EXPECT_EQ(program_refusal("Nr\xff\xff\xff\xff."), at(1, "stores an object under the index 4294967295, which is too large"));
  EXPECT_EQ(program_refusal("\x8a\x09"
                            "123456789."),
            at(0, "contains an integer of more than 64 bits"));
}

TEST(RefusedProgram, WithOtherObjects) {
  EXPECT_EQ(program_refusal("}Na."), at(2, "appends to a dictionary"));
  EXPECT_EQ(program_refusal("](NNu."), at(4, "sets items of a list"));
  EXPECT_EQ(program_refusal("}(Nu."), at(3, "sets an item of a dictionary without a value"));
  EXPECT_EQ(program_refusal("})Ns."), at(4, "makes a dictionary with a tuple as a key"));
  EXPECT_EQ(program_refusal("}(K\1NK\1Nu."), at(9, "makes a dictionary with the key 1 twice"));
  EXPECT_EQ(program_refusal("}(" + text("a") + "N" + text("a") + "Nu."), at(17, "makes a dictionary with the key \"a\" twice"));
  EXPECT_EQ(program_refusal("}}b."), at(2, "sets attributes of a plain dictionary"));
  EXPECT_EQ(program_refusal("]}b."), at(2, "sets attributes of a list"));
  EXPECT_EQ(program_refusal("NQ."), at(1, "refers to an external object that is not a storage"));
  EXPECT_EQ(program_refusal("N)R."), at(2, "calls None with a tuple"));
  EXPECT_EQ(program_refusal("ctorch\nfloat32\n)R."), at(16, "calls a type that is not a function"));
  EXPECT_EQ(program_refusal("ctorch\nSize\n)R."), at(13, "calls a function with 0 arguments, which it does not accept"));
  EXPECT_EQ(program_refusal("ctorch\nSize\nN\x85R."), at(14, "calls a function with None where it expects a tuple"));
  EXPECT_EQ(program_refusal("ccollections\nOrderedDict\n](](NNNee\x85R."),
            at(35, "makes an OrderedDict with an item of 3 elements, not a key and a value"));
  EXPECT_EQ(program_refusal("ctorch.nn.parameter\nParameter\nN\x85R."), at(32, "calls a function with None where it expects a tensor"));
  EXPECT_THAT(program_refusal(tensor(2, 0, {2}, {1}) + "Nb."), ::testing::HasSubstr(": sets attributes of a tensor; "));
  EXPECT_THAT(program_refusal(tensor(2, 0, {2}, {1}) + "(\x88\x89]tb."), ::testing::HasSubstr(": makes a tensor with hooks; "));
  EXPECT_EQ(program_refusal("ctorch\nSize\n."), at(12, "contains a function or type, which is not data"));
  EXPECT_EQ(program_refusal("(" + text("storage") + "ctorch\nIntStorage\n" + text("0") + text("cpu") + "K\2tQ."),
            at(49, "contains a storage that is not part of a tensor"));
}

TEST(RefusedProgram, WithTensorsLargerThanTheirStorage) {
  EXPECT_EQ(program_refusal(tensor(2, 0, {2}, {1}) + "."), "");
  EXPECT_EQ(program_refusal(tensor(2, 2, {0}, {1}) + "."), "");
  const auto beyond = [](const std::string& numbers) {
    return "makes a tensor that reaches beyond its storage (" + numbers + ", 2 elements)";
  };
  const auto message = [](std::initializer_list<int64_t> sizes, std::initializer_list<int64_t> strides, int64_t offset) {
    const auto program = tensor(2, offset, sizes, strides) + ".";
    const auto full = program_refusal(program);
    const auto begin = full.find("makes");
    return begin == std::string::npos ? full : full.substr(begin, full.find(';') - begin);
  };
  constexpr auto kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(message({3}, {1}, 0), beyond("offset 0, sizes [3], strides [1]"));
  EXPECT_EQ(message({2}, {1}, 1), beyond("offset 1, sizes [2], strides [1]"));
  EXPECT_EQ(message({1}, {1}, -1), beyond("offset -1, sizes [1], strides [1]"));
  EXPECT_EQ(message({}, {}, 2), beyond("offset 2, sizes [], strides []"));
  EXPECT_EQ(message({0}, {1}, 3), beyond("offset 3, sizes [0], strides [1]"));
  EXPECT_EQ(message({2}, {-1}, 1), beyond("offset 1, sizes [2], strides [-1]"));
  EXPECT_EQ(message({-1}, {1}, 0), beyond("offset 0, sizes [-1], strides [1]"));
  EXPECT_EQ(message({1, 1}, {1}, 0), beyond("offset 0, sizes [1, 1], strides [1]"));
  EXPECT_EQ(message({3}, {kMax}, 0), beyond(fmt::format("offset 0, sizes [3], strides [{}]", kMax)));
  EXPECT_EQ(message({2, 2}, {kMax, kMax}, 0), beyond(fmt::format("offset 0, sizes [2, 2], strides [{}, {}]", kMax, kMax)));
  EXPECT_EQ(
      message({1000, 1000}, {0, 0}, 0),
      "makes a tensor of sizes [1000, 1000] whose elements share memory (as after expand()), and a copy of it would need too much memory");
  EXPECT_EQ(message({kMax, kMax}, {0, 0}, 0),
            fmt::format("makes a tensor of sizes [{}, {}] whose elements share memory (as after expand()), and a copy of it would need too "
                        "much memory",
                        kMax, kMax));
  EXPECT_THAT(program_refusal(tensor(2, 0, {1000, 1000}, {0, 0}) + "."),
              ::testing::HasSubstr("; call contiguous() on it before torch.save"));
}

TEST(RefusedProgram, WithMissingStorages) {
  EXPECT_EQ(program_refusal(tensor(3, 0, {1}, {1}) + "."),
            "a.pt: contains 8 bytes for storage \"0\", but a tensor needs 12" + std::string(kDamaged));
  EXPECT_EQ(program_refusal(replaced(tensor(2, 0, {1}, {1}), text("0"), text("7")) + "."),
            "a.pt: does not contain storage \"7\", which a tensor needs" + std::string(kDamaged));
  EXPECT_THAT(program_refusal(tensor(-1, 0, {1}, {1}) + "."), ::testing::HasSubstr("refers to a storage of -1 elements"));
  EXPECT_THAT(program_refusal(tensor(std::numeric_limits<int64_t>::max(), 0, {1}, {1}) + "."),
              ::testing::HasSubstr("refers to a storage of 9223372036854775807 elements"));
}

// Small files that request much memory.
TEST(RefusedProgram, NeedsTooMuchMemory) {
  const auto too_much = StartsWith("a.pt: would need more than ");
  // Nested lists, each of which contains the one before it ten times.
  std::string bomb = "]q" + std::string(1, '\0');
  for (char i = 1; i < 20; ++i) {
    bomb += "](";
    for (int j = 0; j < 10; ++j) bomb += std::string("h") + static_cast<char>(i - 1);
    bomb += std::string("eq") + i;
  }
  EXPECT_THAT(program_refusal("(" + bomb + "t."), too_much);
  // A list that contains the same long text many times.
  std::string repeats = "](" + text(std::string(10000, 'a')) + "q" + std::string(1, '\0');
  for (int i = 0; i < 2000; ++i) repeats += std::string("h\0", 2);
  EXPECT_THAT(program_refusal(repeats + "e."), too_much);
  // A list that contains itself.
  EXPECT_THAT(program_refusal(std::string("]q\0h\0a.", 7)),
              ::testing::HasSubstr("nests objects more than 100 levels deep, or inside themselves"));
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += "]";
  for (int i = 1; i < 200; ++i) deep += "a";
  EXPECT_THAT(program_refusal(deep + "."), ::testing::HasSubstr("nests objects more than 100 levels deep, or inside themselves"));
}

}  // namespace
}  // namespace trainer::checkpoint
