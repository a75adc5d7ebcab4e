#include "checkpoint/torch_zip.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "state/view.h"
#include "tests/testing/string_output.h"
#include "tests/testing/trees.h"

namespace trainer::checkpoint {
namespace {

using testing::as_bytes;
using testing::describe;
using testing::StringOutput;

std::string write(const state::Tree& tree) {
  StringOutput output;
  write_torch_zip(tree, "archive", output);
  return output.content();
}

TEST(TorchZip, GivesBackWhatWasWritten) {
  const auto tree = testing::make_tree();
  EXPECT_EQ(describe(read_torch_zip(as_bytes(write(tree)), "a.pt")), describe(tree));
}

}  // namespace
}  // namespace trainer::checkpoint
