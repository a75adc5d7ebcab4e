#include "checkpoint/pytorch_file.h"

#include <gmock/gmock.h>

#include "tests/testing/temporary_folder.h"
#include "tests/testing/trees.h"
#include "tests/unit/checkpoint/files.h"
#include "trainer/checkpoint.h"
#include "trainer/state.h"
#include "trainer/torch.h"

namespace trainer::checkpoint {
namespace {

using testing::describe;

TEST(TorchZip, IsReadBackUnchanged) {
  const auto tree = testing::make_tree();
  EXPECT_EQ(describe(read_pytorch_file(as_bytes(write(tree)), "a.pt")), describe(tree));
}

TEST(TorchZip, ReadsFiles) {
  const testing::TemporaryFolder folder;
  const auto tree = testing::make_tree();
  write_file_atomically(folder.path() / "a.pt", write(tree));
  EXPECT_EQ(describe(checkpoint::load(folder.path() / "a.pt")), describe(tree));
}

TEST(TorchZip, IsTheSameForAnEqualTree) {
  const auto bytes = write(testing::make_tree());
  EXPECT_EQ(write(testing::make_tree()), bytes);
  EXPECT_EQ(write(read_pytorch_file(as_bytes(bytes), "a.pt")), bytes);
}

TEST(TorchZip, WritesSharedMemoryOnce) {
  const auto memory = torch::arange(1000);
  state::Dict tree;
  tree.add("whole", memory);
  tree.add("part", memory.slice(0, 10, 20));
  tree.add("again", memory);
  const auto bytes = write(tree);
  EXPECT_LT(bytes.size(), 2 * memory.nbytes());
  const auto back = read_pytorch_file(as_bytes(bytes), "a.pt");
  const state::View view(back, "a.pt");
  EXPECT_EQ(view.at("whole").tensor().data_ptr(), view.at("again").tensor().data_ptr());
  view.at("whole").tensor()[12] = -1;
  EXPECT_EQ(view.at("part").tensor()[2].item<int64_t>(), -1);
}

TEST(TorchZip, TensorsOutliveTheFile) {
  auto bytes = write(testing::make_tree());
  const auto tree = read_pytorch_file(as_bytes(bytes), "a.pt");
  std::ranges::fill(bytes, '\0');
  EXPECT_EQ(describe(tree), describe(testing::make_tree()));
}

TEST(TorchZip, RefusesToWriteWhatPyTorchCannotRead) {
  const auto memory = torch::zeros({4}, torch::kInt32);
  EXPECT_THROW(write(state::List{memory, memory.view(torch::kFloat32)}), c10::Error);
  EXPECT_THROW(write(state::Tree(torch::Tensor())), c10::Error);
  EXPECT_THROW(write(state::Tree(torch::ones({2}, torch::kComplexFloat).conj())), c10::Error);
  EXPECT_THROW(write(state::Tree(torch::ones({2}).to_sparse())), c10::Error);
}

TEST(TorchZip, AFailureOfTheOutputIsPassedOn) {
  struct FullDisk : Output {
    explicit FullDisk(size_t room) : left(room) {}
    void write(std::string_view bytes) override {
      if (bytes.size() > left) throw Error("the disk is full");
      left -= bytes.size();
    }
    size_t left;
  };
  const state::Tree tree = state::List{torch::arange(100)};
  const auto size = write(tree).size();
  for (size_t room = 0; room < size; room += 7) {
    FullDisk disk(room);
    EXPECT_THROW(write_pytorch_file(tree, disk), Error) << room;
  }
}

TEST(TorchZip, ReadsFilesOfPython) {
  const auto tree = read_pytorch_file(as_bytes(read_corpus("pytorch_file/torch_save.pt")), "torch_save.pt");
  const state::View view(tree, "torch_save.pt");
  const auto weight = view.at("model").at("weight").tensor();
  EXPECT_TRUE(weight.equal(torch::arange(6, torch::kFloat32).reshape({2, 3})));
  EXPECT_FALSE(weight.requires_grad());
  EXPECT_EQ(view.at("model").at("tied").tensor().strides(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(view.at("model").at("tied").tensor().data_ptr(), weight.data_ptr());
  EXPECT_EQ(view.at("optimizer").at("param_groups").elements().at(0).at("betas").elements().at(1).number(), 0.999);
  EXPECT_EQ(view.at("milestones").at(int64_t{60}).integer(), 1);
  const auto types = view.at("types").elements();
  EXPECT_EQ(types.at(0).elements().at(1).integer(), 2);
  EXPECT_EQ(types.at(1).text(), "torch.float16");
  EXPECT_EQ(types.at(2).text(), "cuda");
}

}  // namespace
}  // namespace trainer::checkpoint
