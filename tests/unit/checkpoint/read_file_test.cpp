#include "checkpoint/read_file.h"

#include <gmock/gmock.h>

#include "tests/testing/temporary_folder.h"
#include "tests/testing/trees.h"
#include "tests/unit/checkpoint/files.h"
#include "trainer/checkpoint.h"
#include "trainer/torch.h"

namespace trainer::checkpoint {
namespace {

std::string any_refusal(const std::string& content) {
  return refusal([&] { load(as_bytes(content), "a.pt"); });
}

TEST(ReadAny, DistinguishesTheFormats) {
  Safetensors content;
  content.tensors.add("a", torch::ones({2}));
  EXPECT_EQ(testing::describe(load(as_bytes(write(state::Tree(content.tensors))), "a")), testing::describe(content.tensors));
  EXPECT_EQ(testing::describe(load(as_bytes(write(content)), "a")), testing::describe(content.tensors));
  EXPECT_EQ(testing::describe(load(as_bytes(read_corpus("pytorch_file/legacy.pt")), "a")),
            testing::describe(load(as_bytes(read_corpus("pytorch_file/torch_save.pt")), "a")));
  EXPECT_EQ(testing::describe(load(as_bytes(read_corpus("pytorch_file/deflated.pt")), "a")),
            testing::describe(load(as_bytes(read_corpus("pytorch_file/torch_save.pt")), "a")));
}

TEST(ReadAny, NamesOtherFormats) {
  EXPECT_EQ(any_refusal(""), "a.pt: is empty" + std::string(kDamaged));
  EXPECT_EQ(any_refusal("\x80\x04\x95"),
            "a.pt: is a Python pickle, which can execute arbitrary code, and is not in the format of torch.save; save its content with "
            "torch.save");
  EXPECT_EQ(
      any_refusal("lr: 0.1\nmomentum: 0.9\n"),
      "a.pt: is neither a file of torch.save nor a safetensors file: it begins with the bytes \"lr: 0.1\\x0amomentum\"; give a file of one "
      "of these formats");
  for (const auto* page : {"<!DOCTYPE html>\n<html>", "\xef\xbb\xbf\n<!-- busy --><HTML lang=\"en\">"})
    EXPECT_EQ(any_refusal(page), "a.pt: is an HTML page, such as a web server sends in case of an error; download the file itself");
  EXPECT_EQ(any_refusal("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
            "a.pt: is a pointer of Git LFS in place of the file; fetch the file with `git lfs pull`");
  EXPECT_EQ(any_refusal("\x1f\x8b\x08"), "a.pt: is compressed with gzip; decompress it with gunzip");
  EXPECT_EQ(any_refusal(read_corpus("pytorch_file/legacy_protocol4.pt")),
            "a.pt: has another pickle protocol than 2, which only Python can read; save it again with torch.save without the argument "
            "pickle_protocol");
  EXPECT_EQ(any_refusal(read_corpus("pytorch_file/skip_data.pt")),
            "a.pt: entry \"skip_data/data/0\" has no checksum, because torch.serialization.skip_data() saves tensors without their values; "
            "save it again without skip_data()");
  EXPECT_EQ(any_refusal("PK\5\6" + std::string(18, '\0')),
            "a.pt: is a zip archive, but not a PyTorch file: it does not contain data.pkl; give a file that torch.save wrote");
}

TEST(ReadAny, NamesFilesThatCannotBeRead) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path().string();
  EXPECT_EQ(refusal([&] { load(folder.path() / "a.pt"); }), path + "/a.pt: there is no such file; check the path");
  EXPECT_EQ(refusal([&] { load(folder.path()); }), "cannot read " + path + ": it is a folder, not a regular file");
}

}  // namespace
}  // namespace trainer::checkpoint
