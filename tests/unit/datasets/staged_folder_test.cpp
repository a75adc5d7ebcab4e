#include "datasets/staged_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "datasets/cifar.h"
#include "datasets/image_folder.h"
#include "datasets/mnist.h"
#include "datasets/tiny_imagenet.h"
#include "tests/testing/small_datasets.h"
#include "tests/testing/temporary_folder.h"
#include "tests/unit/datasets/small_files.h"

namespace trainer::datasets::test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StagedFolderTest : public ::testing::Test {
 protected:
  StagedFolderTest() {
    write_bytes(source() / "train/cat/1.jpg", "cat");
    write_bytes(source() / "train/dog/2.jpg", std::string(3'000'000, 'd'));
    write_bytes(source() / "empty", "");
  }

  fs::path source() const { return folder_.path() / "pets"; }
  fs::path stage_to() const { return folder_.path() / "local"; }
  StagedFolder stage(bool is_current = false) const { return {source(), {}, stage_to(), is_current, *logger_}; }

  std::vector<std::string> staged_names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(stage_to())) names.push_back(entry.path().filename().string());
    return names;
  }

  std::string error_of(const std::function<void()>& action) const {
    try {
      action();
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }

  void remove(StagedFolder& folder) const { folder.remove(*logger_); }

 private:
  trainer::testing::TemporaryFolder folder_;
  std::shared_ptr<Logger> logger_ = make_quiet_logger();
};

TEST_F(StagedFolderTest, HoldsTheSameFiles) {
  const auto copy = stage();
  for (const char* name : {"train/cat/1.jpg", "train/dog/2.jpg", "empty"}) {
    EXPECT_EQ(read_file(copy.path() / name), read_file(source() / name)) << name;
  }
  EXPECT_EQ(staged_names().size(), 1U);
  EXPECT_THAT(staged_names().front(), ::testing::MatchesRegex("pets-[0-9a-f]{8}"));
}

TEST_F(StagedFolderTest, HoldsOnlyTheFilesThatAreNamed) {
  const auto with = [&](const std::vector<fs::path>& files) {
    return StagedFolder(source(), files, stage_to(), false, *make_quiet_logger());
  };
  const auto cats = with({"train/cat/1.jpg", "train/cat/missing.jpg", "train"});
  EXPECT_EQ(read_file(cats.path() / "train/cat/1.jpg"), "cat");
  EXPECT_FALSE(fs::exists(cats.path() / "train/dog"));
  const auto others = with({"empty"});
  EXPECT_NE(others.path(), cats.path());
  EXPECT_EQ(with({"empty"}).path(), others.path());
  EXPECT_EQ(staged_names().size(), 2U);
}

TEST_F(StagedFolderTest, IsCopiedOnceUnlessTheSourceChanges) {
  fs::path first;
  {
    const auto copy = stage();
    first = copy.path();
    write_bytes(copy.path() / "empty", "still there");
  }
  EXPECT_EQ(read_file(stage().path() / "empty"), "still there");
  write_bytes(source() / "train/cat/3.jpg", "another cat");
  EXPECT_EQ(read_file(stage(/*is_current=*/true).path() / "empty"), "still there");
  const auto copy = stage();
  EXPECT_EQ(copy.path(), first);
  EXPECT_EQ(read_file(copy.path() / "empty"), "");
  EXPECT_EQ(read_file(copy.path() / "train/cat/3.jpg"), "another cat");
  EXPECT_EQ(staged_names().size(), 1U);
}

TEST_F(StagedFolderTest, AnOutdatedCopyInUseIsNotReplaced) {
  const auto copy = stage();
  fs::last_write_time(source() / "train/cat/1.jpg", fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_THAT(error_of([&] { stage(); }),
              ::testing::MatchesRegex("dataset\\.stage_to: .*pets has changed since it was copied to .*local/pets-[0-9a-f]*, which another "
                                      "process still uses; wait for that process, or choose another folder"));
  EXPECT_EQ(read_file(copy.path() / "train/cat/1.jpg"), "cat");
}

TEST_F(StagedFolderTest, TheLastUserRemovesIt) {
  auto first = stage();
  auto second = stage(/*is_current=*/true);
  remove(first);
  EXPECT_TRUE(fs::exists(second.path()));
  remove(second);
  EXPECT_THAT(staged_names(), IsEmpty());
}

TEST_F(StagedFolderTest, WhatAKilledProcessHasLeftIsReplaced) {
  const auto name = stage().path().parent_path().filename().string();
  fs::remove_all(stage_to() / name);
  write_bytes(stage_to() / ("." + name + ".partial") / "copy/files/empty", "half");
  write_bytes(stage_to() / ("." + name + ".lock"), "");
  const auto copy = stage();
  EXPECT_EQ(read_file(copy.path() / "train/cat/1.jpg"), "cat");
  EXPECT_THAT(staged_names(), ElementsAre(name));
}

TEST_F(StagedFolderTest, ProcessesThatStartTogetherShareOneCopy) {
  const auto begin = [&] {
    const pid_t child = ::fork();
    if (child != 0) return child;
    const auto copy = stage();
    const bool is_whole = fs::file_size(copy.path() / "train/dog/2.jpg") == 3'000'000;
    ::_exit(is_whole ? 0 : 1);
  };
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) children.push_back(begin());
  for (const auto child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(staged_names().size(), 1U);
}

TEST_F(StagedFolderTest, AFolderInItsSourceIsRefused) {
  EXPECT_THAT(error_of([&] { StagedFolder(source(), {}, source() / "copy", false, *make_quiet_logger()); }),
              HasSubstr("pets/copy lies in "));
  EXPECT_FALSE(fs::exists(source() / "copy"));
}

TEST_F(StagedFolderTest, AFileThatCannotBeReadIsNamedAndNothingRemains) {
  fs::create_symlink("/proc/self/mem", source() / "unreadable");
  EXPECT_THAT(error_of([&] { stage(); }), ::testing::MatchesRegex("dataset\\.stage_to: cannot read .*pets/unreadable: .*"));
  EXPECT_THAT(staged_names(), IsEmpty());
}

TEST_F(StagedFolderTest, TooLittleSpaceIsFoundBeforeCopying) {
  fs::create_directories(stage_to());
  // Namespaces of a child process, so that a small file system can be mounted there and nowhere else.
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", stage_to().c_str(), "tmpfs", 0, "size=1m") != 0) {
      ::_exit(2);
    }
    const auto error = error_of([&] { stage(); });
    const bool is_named = error.find("local has 1.0 MiB of free space, but the copy of ") != std::string::npos &&
                          error.ends_with("pets needs 2.9 MiB; free some, or choose another folder");
    if (!is_named) ADD_FAILURE() << error;
    ::_exit(is_named && staged_names().empty() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "this process may not mount a file system";
  EXPECT_EQ(status, 0);
}

// The data sets that have a folder, opened in a copy of it.
TEST(InFolder, DataSetsAreTheSameInACopy) {
  const trainer::testing::SmallDatasets files;
  const trainer::testing::TemporaryFolder folder;
  const auto logger = make_quiet_logger();
  CifarOptions cifar;
  MnistOptions mnist;
  TinyImagenetOptions tiny;
  ImageFolderOptions images;
  cifar.root = mnist.root = tiny.root = files.root().string();
  images.root = (files.root() / "imagefolder").string();
  for (const auto& factory : {cifar_factory(cifar100_layout(), cifar), mnist_factory(mnist_layout(), mnist),
                              tiny_imagenet_factory(tiny_imagenet_archive(), tiny), image_folder_factory(images)}) {
    const StagedFolder copy(factory.locate(*logger), {}, folder.path(), false, *logger);
    const auto in_copy = factory.in_folder(copy.path());
    EXPECT_EQ(in_copy.info.class_names, factory.info.class_names);
    for (const auto split : {Split::kTrain, Split::kValidation}) {
      const auto here = factory.open(split, *logger);
      const auto there = in_copy.open(split, *logger);
      ASSERT_EQ(here->size(), there->size());
      input::Scratch scratch, other_scratch;
      const auto sample = here->read(1, scratch);
      const auto other = there->read(1, other_scratch);
      EXPECT_EQ(sample.label, other.label);
      EXPECT_TRUE(std::ranges::equal(sample.encoded, other.encoded));
    }
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 4);
}

}  // namespace
}  // namespace trainer::datasets::test
