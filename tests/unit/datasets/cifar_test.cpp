#include "datasets/cifar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/testing/temporary_folder.h"
#include "tests/unit/datasets/small_files.h"
#include "trainer/error.h"

namespace trainer::datasets::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr size_t kCifarImageBytes = 3072;

// A record whose pixel i is (i * 7 + salt) modulo 256.
std::string cifar_record(const std::vector<int>& labels, size_t salt) {
  std::string record;
  for (const int label : labels) record += static_cast<char>(label);
  for (size_t i = 0; i < kCifarImageBytes; ++i) record += static_cast<char>((i * 7 + salt) % 256);
  return record;
}

// Five training files with 1, 2, 3, 4 and 5 records and a test file with 2. The labels count up, modulo 10, through the training files.
void write_small_cifar10(const std::filesystem::path& folder) {
  size_t index = 0;
  for (size_t file = 1; file <= 5; ++file) {
    std::string content;
    for (size_t i = 0; i < file; ++i, ++index) content += cifar_record({static_cast<int>(index % 10)}, index);
    write_bytes(folder / ("data_batch_" + std::to_string(file) + ".bin"), content);
  }
  write_bytes(folder / "test_batch.bin", cifar_record({9}, 100) + cifar_record({3}, 101));
}

CifarOptions cifar_options(const std::filesystem::path& root) {
  CifarOptions options;
  options.root = root.string();
  return options;
}

std::unique_ptr<data::Dataset> open_quietly(const CifarLayout& layout, const std::filesystem::path& root, data::Split split) {
  const auto logger = make_quiet_logger();
  return cifar_factory(layout, cifar_options(root)).open(split, *logger);
}

// The text of the DataError that `action` throws.
std::string cifar_data_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const DataError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no DataError";
  return "";
}

std::string cifar10_train_error(const std::filesystem::path& root) {
  return cifar_data_error([&] { open_quietly(cifar10_layout(), root, data::Split::kTrain); });
}

class Cifar10 : public ::testing::Test {
 protected:
  Cifar10() { write_small_cifar10(own()); }
  std::filesystem::path own() const { return folder_.path() / "cifar-10-batches-bin"; }
  std::filesystem::path file(const std::string& name) const { return own() / name; }
  const std::filesystem::path& root() const { return folder_.path(); }

 private:
  trainer::testing::TemporaryFolder folder_;
};

TEST_F(Cifar10, JoinsTheTrainingFilesInTheirOrder) {
  const auto dataset = open_quietly(cifar10_layout(), root(), data::Split::kTrain);
  ASSERT_EQ(dataset->size(), 15);
  data::Scratch scratch;
  for (int64_t index = 0; index < dataset->size(); ++index) {
    const auto sample = dataset->read(index, scratch);
    EXPECT_EQ(sample.target.label, index % 10);
    for (const size_t pixel : {size_t{0}, size_t{1}, kCifarImageBytes - 1}) {
      EXPECT_EQ(sample.image.pixels[pixel], (pixel * 7 + static_cast<size_t>(index)) % 256) << "sample " << index << " pixel " << pixel;
    }
  }
}

TEST_F(Cifar10, ValidationIsTheTestFile) {
  const auto dataset = open_quietly(cifar10_layout(), root(), data::Split::kValidation);
  ASSERT_EQ(dataset->size(), 2);
  data::Scratch scratch;
  EXPECT_EQ(dataset->read(0, scratch).target.label, 9);
  EXPECT_EQ(dataset->read(1, scratch).target.label, 3);
  EXPECT_EQ(dataset->read(1, scratch).image.pixels[0], 101);
}

TEST_F(Cifar10, RootMayBeTheDataSetsOwnFolder) {
  EXPECT_EQ(open_quietly(cifar10_layout(), own(), data::Split::kTrain)->size(), 15);
  EXPECT_EQ(open_quietly(cifar10_layout(), own().string() + "/", data::Split::kValidation)->size(), 2);
}

TEST_F(Cifar10, CutFileIsRefused) {
  std::filesystem::resize_file(file("data_batch_4.bin"), 4 * 3073 - 1);
  EXPECT_EQ(cifar10_train_error(root()),
            file("data_batch_4.bin").string() +
                ": its size of 12291 bytes is not a multiple of the 3073-byte records of CIFAR-10; copy this file from "
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz, or set dataset.root to a new folder and dataset.download=true");
}

TEST_F(Cifar10, EmptyFileIsRefused) {
  std::filesystem::resize_file(file("data_batch_5.bin"), 0);
  EXPECT_THAT(cifar10_train_error(root()),
              StartsWith(file("data_batch_5.bin").string() + ": the file is empty; copy this file from https://"));
}

TEST_F(Cifar10, MissingFileIsNamed) {
  std::filesystem::remove(file("data_batch_3.bin"));
  EXPECT_THAT(cifar10_train_error(root()),
              StartsWith(file("data_batch_3.bin").string() + ": the file is missing; copy this file from https://"));
}

TEST_F(Cifar10, LabelThatDoesNotExistIsRefused) {
  write_bytes(file("data_batch_2.bin"), cifar_record({9}, 0) + cifar_record({10}, 0));
  EXPECT_THAT(cifar10_train_error(root()), StartsWith(file("data_batch_2.bin").string() +
                                                      ": record 1 (from 0) has the label 10, but the labels of CIFAR-10 are 0 to 9; copy"));
}

TEST_F(Cifar10, FolderInPlaceOfAFileIsRefused) {
  std::filesystem::remove(file("data_batch_1.bin"));
  std::filesystem::create_directory(file("data_batch_1.bin"));
  EXPECT_EQ(cifar10_train_error(root()), "cannot read " + file("data_batch_1.bin").string() + ": it is a folder, not a regular file");
}

TEST_F(Cifar10, Cifar100IsNotFoundInItsFolder) {
  EXPECT_THAT(cifar_data_error([&] { open_quietly(cifar100_layout(), root(), data::Split::kTrain); }),
              AllOf(StartsWith("dataset.root: "), HasSubstr("does not contain CIFAR-100"), HasSubstr("cifar-100-binary.tar.gz")));
}

TEST(Cifar10Root, ErrorForAMissingFolderStatesTheRemedy) {
  const trainer::testing::TemporaryFolder folder;
  const auto root = (folder.path() / "data").string();
  EXPECT_EQ(cifar10_train_error(root), "dataset.root: " + root + " does not contain CIFAR-10 (there is no " + root +
                                           "/cifar-10-batches-bin); set dataset.download=true, or unpack "
                                           "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz in " +
                                           root);
  EXPECT_FALSE(std::filesystem::exists(root));
}

TEST(Cifar100, LabelIsTheFineOne) {
  const trainer::testing::TemporaryFolder folder;
  write_bytes(folder.path() / "cifar-100-binary" / "train.bin", cifar_record({19, 99}, 5) + cifar_record({0, 42}, 6));
  write_bytes(folder.path() / "cifar-100-binary" / "test.bin", cifar_record({3, 7}, 8));
  const auto train = open_quietly(cifar100_layout(), folder.path(), data::Split::kTrain);
  const auto validation = open_quietly(cifar100_layout(), folder.path(), data::Split::kValidation);
  ASSERT_EQ(train->size(), 2);
  ASSERT_EQ(validation->size(), 1);
  EXPECT_EQ(train->info().num_classes, 100);
  data::Scratch scratch;
  EXPECT_EQ(train->read(0, scratch).target.label, 99);
  EXPECT_EQ(train->read(1, scratch).target.label, 42);
  EXPECT_EQ(train->read(1, scratch).image.pixels[1], 13);
  EXPECT_EQ(validation->read(0, scratch).target.label, 7);
}

TEST(Cifar100, ClassesAreInTheOrderOfTheAlphabet) {
  const auto info = cifar_factory(cifar100_layout(), {}).info;
  ASSERT_EQ(info.class_names.size(), 100U);
  EXPECT_EQ(std::set<std::string>(info.class_names.begin(), info.class_names.end()).size(), 100U);
  EXPECT_TRUE(std::ranges::is_sorted(info.class_names));
  // The labels of these classes in the published data set.
  EXPECT_EQ(info.class_names[0], "apple");
  EXPECT_EQ(info.class_names[1], "aquarium_fish");
  EXPECT_EQ(info.class_names[50], "mouse");
  EXPECT_EQ(info.class_names[99], "worm");
}

TEST(Cifar100, EitherLabelIsChecked) {
  const trainer::testing::TemporaryFolder folder;
  const auto file = folder.path() / "cifar-100-binary" / "train.bin";
  const auto error = [&] { return cifar_data_error([&] { open_quietly(cifar100_layout(), folder.path(), data::Split::kTrain); }); };
  write_bytes(file, cifar_record({20, 0}, 0));
  EXPECT_THAT(error(), HasSubstr("record 0 (from 0) has the label 20, but the labels of CIFAR-100 are 0 to 19"));
  write_bytes(file, cifar_record({0, 0}, 0) + cifar_record({0, 100}, 0));
  EXPECT_THAT(error(), HasSubstr("record 1 (from 0) has the label 100, but the labels of CIFAR-100 are 0 to 99"));
  write_bytes(file, cifar_record({0}, 0));
  EXPECT_THAT(error(), HasSubstr("its size of 3073 bytes is not a multiple of the 3074-byte records of CIFAR-100"));
}

TEST(Cifar10Sample, HasTheSameNumberOfImagesOfEachClass) {
  const auto root = std::filesystem::path(TRAINER_SOURCE_DIR) / "datasets" / "cifar10_sample";
  for (const auto& [split, per_class] : {std::pair{data::Split::kTrain, 200}, std::pair{data::Split::kValidation, 50}}) {
    const auto dataset = open_quietly(cifar10_layout(), root, split);
    EXPECT_EQ(dataset->size(), per_class * 10);
    std::vector<int> counts(10);
    data::Scratch scratch;
    for (int64_t index = 0; index < dataset->size(); ++index) ++counts[static_cast<size_t>(dataset->read(index, scratch).target.label)];
    EXPECT_THAT(counts, ::testing::Each(per_class));
  }
}

}  // namespace
}  // namespace trainer::datasets::test
