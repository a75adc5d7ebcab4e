#include "datasets/staged_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/file.h"
#include "datasets/cifar.h"
#include "datasets/image_folder.h"
#include "datasets/mnist.h"
#include "datasets/tiny_imagenet.h"
#include "tests/testing/small_datasets.h"
#include "tests/testing/temporary_folder.h"
#include "tests/unit/datasets/small_files.h"
#include "trainer/error.h"

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
  // The folder of this user's copies.
  fs::path copies() const { return stage_to() / ("trainer-" + std::to_string(::geteuid())); }
  StagedFolder stage(bool is_current = false) const { return {source(), {}, stage_to(), is_current, *logger_}; }

  std::vector<std::string> staged_names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(copies())) names.push_back(entry.path().filename().string());
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
  const auto first = stage().path();
  const auto marker = first.parent_path() / "marker";
  write_bytes(marker, "");
  EXPECT_EQ(stage().path(), first);
  EXPECT_TRUE(fs::exists(marker));
  write_bytes(source() / "train/cat/3.jpg", "another cat");
  EXPECT_FALSE(fs::exists(stage(/*is_current=*/true).path() / "train/cat/3.jpg"));
  const auto copy = stage();
  EXPECT_EQ(copy.path(), first);
  EXPECT_FALSE(fs::exists(marker));
  EXPECT_EQ(read_file(copy.path() / "train/cat/3.jpg"), "another cat");
  EXPECT_EQ(staged_names().size(), 1U);
}

TEST_F(StagedFolderTest, ACopyThatWasChangedIsMadeAgain) {
  const auto path = stage().path();
  const std::vector<std::function<void()>> changes = {
      [&] { fs::remove(path / "train/cat/1.jpg"); },
      [&] { fs::remove_all(path); },
      [&] { fs::remove(path.parent_path() / "manifest.txt"); },
      [&] { write_bytes(path / "train/cat/9.jpg", "not from the source"); },
      [&] { fs::resize_file(path / "train/dog/2.jpg", 10); },
      [&] {
        const auto time = fs::last_write_time(path / "train/cat/1.jpg");
        write_bytes(path / "train/cat/1.jpg", "dog");
        fs::last_write_time(path / "train/cat/1.jpg", time + std::chrono::nanoseconds(1));
      },
  };
  for (const auto& change : changes) {
    change();
    const auto copy = stage();
    EXPECT_EQ(copy.path(), path);
    EXPECT_EQ(read_file(path / "train/cat/1.jpg"), "cat");
    EXPECT_EQ(fs::file_size(path / "train/dog/2.jpg"), 3'000'000U);
    EXPECT_FALSE(fs::exists(path / "train/cat/9.jpg"));
  }
  const auto in_use = stage();
  fs::remove(path / "train/cat/1.jpg");
  EXPECT_THAT(error_of([&] { stage(); }), HasSubstr(" were removed or changed, and another process still uses it; wait for that"));
}

TEST_F(StagedFolderTest, OnlyThisUserMayEnterItsFolderAndOthersMayHaveTheirs) {
  stage();
  EXPECT_EQ(fs::status(copies()).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(stage_to()).permissions(), fs::perms::all | fs::perms::sticky_bit);
  fs::permissions(copies(), fs::perms::all);
  stage();
  EXPECT_EQ(fs::status(copies()).permissions(), fs::perms::owner_all);
  const auto expect_refused = [&] {
    EXPECT_EQ(error_of([&] { stage(); }),
              "dataset.stage_to: " + copies().string() +
                  " is not a folder of this user, so its content cannot be trusted; remove it, or choose another folder");
  };
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(copies().c_str(), 12345, 12345), 0);
    expect_refused();
    ASSERT_EQ(::chown(copies().c_str(), 0, 0), 0);
  }
  fs::rename(copies(), stage_to() / "elsewhere");
  fs::create_symlink("elsewhere", copies());
  expect_refused();
}

// The training images of the data set in `root`: "LABEL PATH SIZE" of each, or "LABEL PATH ERROR" if it cannot be read.
std::vector<std::string> contents(const fs::path& root) {
  ImageFolderOptions options;
  options.root = root.string();
  std::vector<std::string> lines;
  const auto dataset = image_folder_factory(options).open(data::Split::kTrain, *make_quiet_logger());
  data::Scratch scratch;
  for (int64_t i = 0; i < dataset->size(); ++i) {
    auto line = std::to_string(dataset->label(i)) + ' ' + fs::path(dataset->origin(i).name).lexically_relative(root).string();
    try {
      const auto bytes = dataset->read(i, scratch).encoded;
      line += ' ' + std::to_string(bytes.size());
    } catch (const std::runtime_error& error) {
      line += std::string(" ") + error.what();
    }
    lines.push_back(line);
  }
  return lines;
}

TEST_F(StagedFolderTest, LinksAndOtherFilesAreAsInTheSource) {
  const auto train = source() / "train";
  write_bytes(source().parent_path() / "extra/8.jpg", "an image elsewhere");
  write_bytes(train / "cat/kittens/5.jpg", "kitten");
  fs::create_symlink("..", train / "cat/up");
  fs::create_symlink("../../..", train / "cat/out");
  fs::create_symlink("kittens", train / "cat/again");
  fs::create_symlink("../dog", train / "cat/dogs");
  fs::create_symlink("../../../extra", train / "cat/extra");
  fs::create_symlink("missing", train / "cat/broken.jpg");
  fs::create_symlink("loop.jpg", train / "cat/loop.jpg");
  fs::create_symlink("dog", train / "hound");
  ASSERT_EQ(::mkfifo((train / "cat/pipe.jpg").c_str(), 0600), 0);
  const auto copy = stage();
  const auto in_source = contents(source());
  EXPECT_EQ(contents(copy.path()), in_source);
  EXPECT_THAT(in_source, ::testing::Contains("0 train/cat/pipe.jpg cannot be read: it is a pipe, not a regular file"));
  EXPECT_EQ(in_source.size(), 9U);
  EXPECT_TRUE(fs::is_symlink(copy.path() / "train/cat/up"));
  const auto marker = copy.path().parent_path() / "marker";
  write_bytes(marker, "");
  stage();
  EXPECT_TRUE(fs::exists(marker)) << "the copy was made again";
}

TEST_F(StagedFolderTest, AnOutdatedCopyInUseIsNotReplaced) {
  const auto copy = stage();
  fs::last_write_time(source() / "train/cat/1.jpg", fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_THAT(error_of([&] { stage(); }),
              ::testing::MatchesRegex(
                  "dataset\\.stage_to: .*pets has changed since it was copied to .*local/trainer-[0-9]*/pets-[0-9a-f]*, which another "
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
  fs::remove_all(copies() / name);
  write_bytes(copies() / ("." + name + ".partial") / "copy/files/empty", "half");
  write_bytes(copies() / ("." + name + ".lock"), "");
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
              HasSubstr("pets/copy is inside "));
  EXPECT_FALSE(fs::exists(source() / "copy"));
}

TEST_F(StagedFolderTest, AFileThatCannotBeReadIsNamedAndNothingRemains) {
  fs::create_symlink("/proc/self/mem", source() / "unreadable");
  EXPECT_THAT(error_of([&] { stage(); }), ::testing::MatchesRegex("dataset\\.stage_to: cannot read .*pets/unreadable: .*"));
  EXPECT_THAT(staged_names(), IsEmpty());
}

TEST_F(StagedFolderTest, TooLittleSpaceIsFoundBeforeCopying) {
  fs::create_directories(stage_to());
  // The child process gets a mount namespace of its own, so that the small file system is mounted only there.
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", stage_to().c_str(), "tmpfs", 0, "size=1m") != 0) {
      ::_exit(2);
    }
    const auto error = error_of([&] { stage(); });
    // The lock file has a page of the megabyte.
    const bool is_named = error.find(" has 1020.0 KiB of free space, but the copy of ") != std::string::npos &&
                          error.ends_with("pets needs 2.9 MiB; free some space, or choose another folder");
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
                              tiny_imagenet_factory(tiny_imagenet_source(), tiny), image_folder_factory(images)}) {
    const StagedFolder copy(factory.locate(*logger), {}, folder.path(), false, *logger);
    const auto in_copy = factory.in_folder(copy.path());
    EXPECT_EQ(in_copy.info.class_names, factory.info.class_names);
    for (const auto split : {data::Split::kTrain, data::Split::kValidation}) {
      const auto here = factory.open(split, *logger);
      const auto there = in_copy.open(split, *logger);
      ASSERT_EQ(here->size(), there->size());
      data::Scratch scratch, other_scratch;
      const auto sample = here->read(1, scratch);
      const auto other = there->read(1, other_scratch);
      EXPECT_EQ(sample.target.label, other.target.label);
      EXPECT_TRUE(std::ranges::equal(sample.encoded, other.encoded));
    }
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path() / ("trainer-" + std::to_string(::geteuid()))), fs::directory_iterator()), 4);
}

}  // namespace
}  // namespace trainer::datasets::test
