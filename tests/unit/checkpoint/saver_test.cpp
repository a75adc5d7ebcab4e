#include "checkpoint/saver.h"

#include <gmock/gmock.h>

#include "tests/testing/temporary_folder.h"
#include "tests/testing/trees.h"
#include "trainer/checkpoint.h"
#include "trainer/torch.h"

namespace trainer::checkpoint {
namespace {

state::Tree tree_of(const torch::Tensor& tensor) {
  state::Dict tree;
  tree.add("weight", tensor);
  return tree;
}

TEST(Saver, WritesWhatTheTreeHeldAndReportsEachSaveOnce) {
  const testing::TemporaryFolder folder;
  Saver saver(Store(folder.path(), /*keep_last=*/3), /*pin_memory=*/false);
  auto weight = torch::arange(1000).to(torch::kFloat32);
  const auto expected = testing::describe(tree_of(weight.clone()));
  EXPECT_FALSE(saver.poll());
  saver.reserve(tree_of(weight));
  saver.save(tree_of(weight), 5, /*is_best=*/true);
  weight.fill_(0);
  const auto saved = saver.finish();
  ASSERT_TRUE(saved);
  EXPECT_EQ(saved->error, "");
  EXPECT_EQ(saved->step, 5);
  EXPECT_EQ(saved->num_bytes, std::filesystem::file_size(saved->file));
  EXPECT_EQ(testing::describe(checkpoint::load(saved->file)), expected);
  EXPECT_FALSE(saver.poll());
  EXPECT_FALSE(saver.finish());
}

TEST(Saver, ReportsAFailureToWriteAndWritesTheNextCheckpoint) {
  const testing::TemporaryFolder folder;
  Saver saver(Store(folder.path() / "checkpoints", /*keep_last=*/3), /*pin_memory=*/false);
  std::filesystem::remove_all(folder.path() / "checkpoints");
  saver.save(tree_of(torch::ones({3})), 1, /*is_best=*/false);
  const auto failed = saver.finish();
  ASSERT_TRUE(failed);
  EXPECT_THAT(failed->error, ::testing::HasSubstr("step_00000001.pt"));
  std::filesystem::create_directories(folder.path() / "checkpoints");
  saver.save(tree_of(torch::ones({3})), 2, /*is_best=*/false);
  std::optional<Saved> saved;
  while (!saved) saved = saver.poll();
  EXPECT_EQ(saved->error, "");
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "checkpoints" / "step_00000002.pt"));
}

// The test does not call finish(): the destructor waits for the write.
TEST(Saver, EndsWithACompleteFile) {
  const testing::TemporaryFolder folder;
  const auto tree = tree_of(torch::ones({1 << 20}));
  Saver(Store(folder.path(), /*keep_last=*/3), /*pin_memory=*/false).save(tree, 7, /*is_best=*/false);
  EXPECT_EQ(testing::describe(checkpoint::load(folder.path() / "step_00000007.pt")), testing::describe(tree));
}

}  // namespace
}  // namespace trainer::checkpoint
