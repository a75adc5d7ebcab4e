#include "checkpoint/store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <optional>

#include "base/file.h"
#include "checkpoint/pytorch_file.h"
#include "tests/testing/file_size_limit.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/checkpoint.h"
#include "trainer/torch.h"

namespace {

bool has_symbolic_links = true;

}  // namespace

// Replaces the function of the C library in this test program, to imitate a file system without symbolic links.
extern "C" int symlink(const char* target, const char* link) noexcept {
  if (has_symbolic_links) return ::symlinkat(target, AT_FDCWD, link);
  errno = EPERM;
  return -1;
}

namespace trainer::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() {
    EXPECT_FALSE(WrittenFiles::create(list_));
    written_.emplace(list_);
  }
  Store store(int64_t keep_last) { return {path(), keep_last, &*written_}; }
  fs::path path() const { return folder_.path() / "checkpoints"; }
  // Returns the names of the files that were removed.
  static std::vector<std::string> write(Store& store, int64_t step, bool is_best = false) {
    state::Dict tree;
    tree.add("step", step);
    std::vector<std::string> names;
    for (const auto& file : store.write(tree, step, is_best).removed) names.push_back(file.filename().string());
    return names;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& file : list_checkpoints(path())) names.push_back(file.filename().string());
    return names;
  }
  void damage(int64_t step) const { fs::resize_file(path() / checkpoint_name(step), 100); }

 private:
  testing::TemporaryFolder folder_;
  fs::path list_ = folder_.path() / ".list";
  std::optional<WrittenFiles> written_;
};

TEST_F(StoreTest, KeepsTheNewestAndTheBestAndTellsWhatItRemoves) {
  auto store = this->store(2);
  write(store, 1, /*is_best=*/true);
  write(store, 2);
  EXPECT_THAT(write(store, 3), IsEmpty());
  EXPECT_THAT(write(store, 4), ElementsAre("step_00000002.pt"));
  EXPECT_THAT(names(), ElementsAre("step_00000004.pt", "step_00000003.pt", "step_00000001.pt"));
}

// The run resumed from step 2 because the later checkpoints were damaged, and has a smaller keep_last.
TEST_F(StoreTest, DamagedNewerFilesAreNotCounted) {
  auto first = store(4);
  for (const int step : {1, 2, 3, 4}) write(first, step, /*is_best=*/step == 1);
  damage(3);
  damage(4);
  auto second = store(1);
  write(second, 2);
  EXPECT_THAT(names(), ElementsAre("step_00000004.pt", "step_00000003.pt", "step_00000002.pt", "step_00000001.pt"));
  // The damaged files are now older than the newest one.
  EXPECT_THAT(write(second, 5), ElementsAre("step_00000004.pt", "step_00000003.pt", "step_00000002.pt"));
  EXPECT_THAT(names(), ElementsAre("step_00000005.pt", "step_00000001.pt"));
}

TEST_F(StoreTest, DamagedOlderFilesAreNotCounted) {
  auto first = store(4);
  for (const int step : {1, 2, 3}) write(first, step);
  damage(3);
  auto second = store(2);
  EXPECT_THAT(write(second, 4), ElementsAre("step_00000001.pt"));
  EXPECT_THAT(names(), ElementsAre("step_00000004.pt", "step_00000003.pt", "step_00000002.pt"));
}

TEST_F(StoreTest, TheLargestSizeOfAFile) {
  EXPECT_EQ(store(1).largest_file(), std::nullopt);
  const testing::FileSizeLimit limit(1 << 20);
  EXPECT_EQ(store(1).largest_file(), 1 << 20);
}

TEST_F(StoreTest, FilesOfOthersStay) {
  auto first = store(3);
  write(first, 1);
  for (const char* name : {"step_1.pt", "step_00000000.pt", "notes.tmp", "notes.tmp1", "step_00000001.pt.tmpx", "step_00000001.pt.tmp77"}) {
    std::ofstream(path() / name) << "of somebody";
  }
  auto second = store(1);
  EXPECT_THAT(write(second, 2), ElementsAre("step_00000001.pt"));
  EXPECT_THAT(names(), ElementsAre("step_00000002.pt", "step_1.pt", "step_00000000.pt"));
  for (const char* name : {"notes.tmp", "notes.tmp1", "step_00000001.pt.tmpx"}) EXPECT_TRUE(fs::exists(path() / name)) << name;
  // A killed process has left this temporary file.
  EXPECT_FALSE(fs::exists(path() / "step_00000001.pt.tmp77"));
}

TEST_F(StoreTest, TheBestOfAnotherFolderStaysUntilThereIsABetterOne) {
  const testing::TemporaryFolder other;
  const auto file = other.path() / "step_00000007.pt";
  save(file, state::Dict());
  auto store = this->store(1);
  EXPECT_TRUE(store.set_first_best(file));
  EXPECT_FALSE(store.set_first_best(file));
  write(store, 8);
  EXPECT_EQ(read_file(path() / "best.pt"), read_file(file));
  write(store, 9, /*is_best=*/true);
  EXPECT_EQ(fs::read_symlink(path() / "best.pt"), "step_00000009.pt");
  EXPECT_TRUE(fs::exists(file));
}

TEST_F(StoreTest, WithoutSymbolicLinksTheNewestAndTheBestAreFiles) {
  has_symbolic_links = false;
  auto store = this->store(1);
  EXPECT_EQ(store.link_error(), std::errc::operation_not_permitted);
  write(store, 1, /*is_best=*/true);
  const auto best = read_file(path() / "step_00000001.pt");
  EXPECT_THAT(write(store, 2), ElementsAre("step_00000001.pt"));
  has_symbolic_links = true;
  for (const char* name : {"best.pt", "last.pt"}) EXPECT_FALSE(fs::is_symlink(path() / name)) << name;
  EXPECT_EQ(read_file(path() / "best.pt"), best);
  EXPECT_EQ(read_file(path() / "last.pt"), read_file(path() / "step_00000002.pt"));
  // Nothing else is left, and links replace the files once the file system has them.
  EXPECT_EQ(std::distance(fs::directory_iterator(path()), {}), 3);
  auto next = this->store(1);
  write(next, 3, /*is_best=*/true);
  EXPECT_EQ(fs::read_symlink(path() / "best.pt"), "step_00000003.pt");
  EXPECT_EQ(fs::read_symlink(path() / "last.pt"), "step_00000003.pt");
}

}  // namespace
}  // namespace trainer::checkpoint
