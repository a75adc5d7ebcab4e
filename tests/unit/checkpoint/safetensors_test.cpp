#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/bytes.h"
#include "tests/testing/trees.h"
#include "tests/unit/checkpoint/files.h"
#include "trainer/torch.h"

namespace trainer::checkpoint {
namespace {

using little_endian::append;
using little_endian::load;

using testing::describe;
using ::testing::StartsWith;

// A file of this header and 8 bytes of values.
std::string make_safetensors(const std::string& header) {
  std::string file;
  append(file, uint64_t{header.size()});
  return file + header + "12345678";
}

std::string damaged_safetensors(const std::string& what) { return "a.safetensors: " + what + kDamaged; }

TEST(SafetensorsFile, IsReadBackUnchanged) {
  Safetensors content;
  content.metadata = {{"format", "pt"}, {"a \"b\"", "\xc3\xa4"}};
  content.tensors.add("wide", torch::arange(3, torch::kFloat64));
  content.tensors.add("a", torch::arange(6, torch::kFloat32).reshape({2, 3}));
  content.tensors.add("b", torch::tensor(2.5));
  content.tensors.add("empty", torch::empty({0, 3}, torch::kInt32));
  content.tensors.add("half", torch::arange(3, torch::kBFloat16));
  content.tensors.add("flags", torch::ones({3}, torch::kBool));
  const auto back = read_safetensors(as_bytes(write(content)), "a.safetensors");
  EXPECT_EQ(describe(back.tensors), describe(content.tensors));
  EXPECT_EQ(back.metadata, content.metadata);
}

TEST(SafetensorsFile, StoresStridedTensorsInRowMajorOrder) {
  Safetensors content;
  const auto transposed = torch::arange(6).reshape({2, 3}).t();
  content.tensors.add("transposed", transposed);
  const auto back = read_safetensors(as_bytes(write(content)), "a.safetensors");
  EXPECT_EQ(describe(back.tensors.items().at(0).value), describe(transposed.contiguous()));
}

TEST(SafetensorsFile, BeginsValuesAtMultiplesOf8) {
  Safetensors content;
  for (const auto* name : {"a", "ab", "abc"}) {
    content.tensors.add(name, torch::ones({1}));
    EXPECT_EQ(load<uint64_t>(as_bytes(write(content)).data()) % 8, 0U);
  }
}

TEST(SafetensorsFile, ReadsFilesOfPython) {
  const auto content = read_safetensors(as_bytes(read_corpus("safetensors/python.safetensors")), "python.safetensors");
  EXPECT_EQ(content.metadata.at("format"), "pt");
  const auto* weight = content.tensors.find("weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(describe(*weight), describe(torch::arange(6, torch::kFloat32).reshape({2, 3})));
  EXPECT_EQ(content.tensors.items().size(), 4U);
}

TEST(SafetensorsFile, RefusesToWriteWhatTheFormatCannotHold) {
  const auto memory = torch::arange(10);
  Safetensors content;
  content.tensors.add("a", memory.slice(0, 0, 5));
  content.tensors.add("b", memory.slice(0, 5, 10));
  EXPECT_EQ(refusal([&] { write(content); }), "");
  content.tensors.add("c", memory.slice(0, 4, 6));
  EXPECT_EQ(refusal([&] { write(content); }),
            "a and c share memory, which a safetensors file cannot represent; use PyTorch's format (--format state_dict)");
  content = {};
  content.tensors.add("a", torch::ones({1}, torch::kComplexDouble));
  EXPECT_EQ(refusal([&] { write(content); }),
            "a: safetensors files cannot contain tensors of ComplexDouble; use PyTorch's format (--format state_dict)");
}

TEST(SafetensorsFile, IsRefusedWhenItsLengthIsWrong) {
  const auto file = make_safetensors(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})");
  EXPECT_EQ(safetensors_refusal(file), "");
  EXPECT_EQ(safetensors_refusal(""), damaged_safetensors("is too short to contain the length of a header"));
  EXPECT_EQ(safetensors_refusal("1234567"), damaged_safetensors("is too short to contain the length of a header"));
  EXPECT_EQ(safetensors_refusal(file.substr(0, file.size() / 2)),
            damaged_safetensors(fmt::format("states a header of 54 bytes, but only {} bytes follow", file.size() / 2 - 8)));
  EXPECT_EQ(safetensors_refusal(file.substr(0, file.size() - 1)),
            damaged_safetensors("its tensors need 8 bytes, but 7 bytes follow the header"));
  EXPECT_EQ(safetensors_refusal(file + "9"), damaged_safetensors("its tensors need 8 bytes, but 9 bytes follow the header"));
  EXPECT_EQ(safetensors_refusal(replaced(file, 7, "\x7f")),
            damaged_safetensors("states a header of 9151314442816847926 bytes, which is more than safetensors allows"));
}

TEST(SafetensorsFile, IsRefusedWhenItsTensorsDoNotFillIt) {
  const auto tensor = [](const char* name, const char* dtype, const char* shape, const char* offsets) {
    return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{}]}})", name, dtype, shape, offsets);
  };
  const auto refusal_of = [&](const std::string& first, const std::string& second) {
    return safetensors_refusal(make_safetensors('{' + first + (second.empty() ? "" : ',' + second) + '}'));
  };
  EXPECT_EQ(refusal_of(tensor("b", "U8", "4", "4,8"), tensor("a", "F32", "1", "0,4")), "");
  EXPECT_EQ(refusal_of(tensor("a", "F32", "1", "0,4"), tensor("b", "F32", "", "2,6")),
            damaged_safetensors("tensor \"b\" begins at byte 2 of the values instead of byte 4: it overlaps the previous tensor"));
  EXPECT_EQ(refusal_of(tensor("a", "F32", "1", "0,4"), tensor("b", "U8", "2", "6,8")),
            damaged_safetensors("tensor \"b\" begins at byte 6 of the values instead of byte 4: there is a gap before it"));
  EXPECT_EQ(refusal_of(tensor("a", "F32", "1", "0,4"), tensor("a", "F32", "1", "4,8")),
            damaged_safetensors("its header contains \"a\" twice"));
  EXPECT_EQ(refusal_of(tensor("a", "F32", "3", "0,8"), ""),
            damaged_safetensors("tensor \"a\" has dtype F32 and shape [3], but its bytes 0 to 8 have a different size"));
  EXPECT_EQ(refusal_of(tensor("a", "F32", "2", "8,0"), ""),
            damaged_safetensors("tensor \"a\" has dtype F32 and shape [2], but its bytes 8 to 0 have a different size"));
  EXPECT_EQ(refusal_of(tensor("a", "U8", "4294967296,4294967296,4294967296", "0,8"), ""),
            damaged_safetensors(
                "tensor \"a\" has dtype U8 and shape [4294967296, 4294967296, 4294967296], but its bytes 0 to 8 have a different size"));
  EXPECT_EQ(
      refusal_of(tensor("a", "U8", "0,9223372036854775807,9223372036854775807", "0,0"), tensor("b", "I64", "1", "0,8")),
      damaged_safetensors(
          "tensor \"a\" has dtype U8 and shape [0, 9223372036854775807, 9223372036854775807], but its bytes 0 to 0 have a different size"));
  EXPECT_EQ(refusal_of(tensor("a", "U8", "9223372036854775807", "0,9223372036854775807"), ""),
            damaged_safetensors("its tensors need 9223372036854775807 bytes, but 8 bytes follow the header"));
  EXPECT_EQ(refusal_of(tensor("a", "F4", "16", "0,8"), ""),
            "a.safetensors: tensor \"a\" has the dtype \"F4\", which is not supported; save it with a dtype that PyTorch supports");
}

TEST(SafetensorsFile, IsRefusedWhenItsHeaderIsNone) {
  const auto refusal_of = [](const std::string& header) { return safetensors_refusal(make_safetensors(header)); };
  for (const auto* none : {"", "{\"a\":", "[]", "7", "{\"a\":1e999}"}) {
    EXPECT_EQ(refusal_of(none), damaged_safetensors("its header is not a JSON object")) << none;
  }
  const auto is_odd = [](const std::string& key) {
    return fmt::format(
        "a.safetensors: its header describes \"{}\" in a way that the format does not allow; save it again with Python's safetensors "
        "package",
        key);
  };
  const auto with = [](const std::string& shape, const std::string& offsets = "0,8", const std::string& more = "") {
    return fmt::format(R"({{"a":{{"dtype":"I64","shape":[{}],"data_offsets":[{}]{}}}}})", shape, offsets, more);
  };
  EXPECT_EQ(refusal_of(with("1")), "");
  for (const auto* shape : {"-1", "1.5", "9223372036854775808", "18446744073709551616", "[1]", "\"1\""}) {
    EXPECT_EQ(refusal_of(with(shape)), is_odd("a")) << shape;
  }
  for (const auto* offsets : {"0", "0,8,8", "0,-8", "null"}) EXPECT_EQ(refusal_of(with("1", offsets)), is_odd("a")) << offsets;
  EXPECT_EQ(refusal_of(with("1", "0,8", R"(,"type":"F32")")), is_odd("a"));
  EXPECT_EQ(refusal_of(with("1", "0,8", R"(,"shape":[1])")), damaged_safetensors("its header contains \"shape\" twice"));
  for (const auto* entry : {"null", "true", "\"F32\"", "[]", R"({"dtype":"F32"})", R"({"dtype":{},"shape":[1],"data_offsets":[0,8]})"}) {
    EXPECT_EQ(refusal_of(fmt::format(R"({{"a":{}}})", entry)), is_odd("a")) << entry;
  }
  EXPECT_EQ(refusal_of(R"({"__metadata__":{"a":1}})"), is_odd("__metadata__"));
  EXPECT_EQ(refusal_of(R"({"__metadata__":{"a":"1","a":"2"}})"), damaged_safetensors("its header contains \"a\" twice"));
  EXPECT_EQ(refusal_of("{\"a\":" + std::string(100000, '[') + "}"), is_odd("a"));
  std::string dimensions = "1";
  for (int i = 0; i < 64; ++i) dimensions += ",1";
  EXPECT_EQ(refusal_of(with(dimensions)), is_odd("a"));
}

TEST(SafetensorsFile, IsRefusedWhenItHoldsTooManyTensors) {
  std::string header = "{";
  for (int i = 0; i < 200000; ++i) header += fmt::format(R"("{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}},)", i);
  header.back() = '}';
  EXPECT_THAT(safetensors_refusal(make_safetensors(header)), StartsWith("a.safetensors: would need more than "));
}

}  // namespace
}  // namespace trainer::checkpoint
