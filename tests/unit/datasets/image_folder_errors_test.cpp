#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "datasets/folder_listing.h"
#include "datasets/image_folder.h"
#include "tests/unit/datasets/failure_of.h"
#include "tests/unit/datasets/image_folder_case.h"
#include "trainer/error.h"

namespace trainer::datasets::test {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kRootRemedy =
    "; set dataset.root to a folder that contains one folder of images per class, either directly or in train/ and val/";

using ImageFolderErrorsTest = ImageFolderTest;

TEST_F(ImageFolderErrorsTest, AClassOfValidationThatTrainingLacksIsRefused) {
  write({"train/cat/1.jpg", "val/cat/1.jpg", "val/cow/1.jpg"});
  EXPECT_EQ(open(data::Split::kTrain)->size(), 1);
  EXPECT_EQ(failure(data::Split::kValidation), path("val") + " has the class folder \"cow\", which " + path("train") +
                                                   " does not have; remove it, or add training images of that class");
}

TEST_F(ImageFolderErrorsTest, AClassWithoutImagesIsRefused) {
  write({"train/cat/1.jpg"});
  make_folder("train/dog/empty");
  EXPECT_EQ(failure(data::Split::kTrain),
            path("train/dog") +
                " has no images (files ending in .jpg .jpeg .png .ppm .bmp .pgm .tif .tiff .webp); add images, or remove the folder");
  write({"train/dog/.1.jpg", "train/dog/1.gif", "train/dog/sub/jpg"});
  EXPECT_THAT(failure(data::Split::kTrain), AllOf(StartsWith(path("train/dog") + " has no images (files ending in .jpg "),
                                                  EndsWith(" .webp) among its 2 files; add images, or remove the folder")));
}

TEST_F(ImageFolderErrorsTest, TheNumberOfChannelsOfMissingRawImagesIsUnknown) {
  ImageFolderOptions options{.files = {.mode = data::ImageMode::kRaw}};
  options.root = path("nowhere");
  EXPECT_EQ(image_folder_factory(options).info.decoding.num_channels(), std::nullopt);
  write({"train/cat/1.jpg"});
  options.root = root();
  const auto made = image_folder_factory(options);
  EXPECT_EQ(made.info.decoding.num_channels(), std::nullopt);
  EXPECT_EQ(failure_of(made, data::Split::kTrain),
            path("train/cat") + " has no images (files ending in .tif .tiff .npy) among its 1 file; add images, or remove the folder");
}

TEST_F(ImageFolderErrorsTest, IfNoRawImageCanBeReadTheFirstIsNamed) {
  ImageFolderOptions options{.files = {.mode = data::ImageMode::kRaw}};
  options.root = root();
  make_folder("train/cat");
  make_folder("train/dog");
  for (const char* name : {"train/cat/1.npy", "train/cat/2.npy", "train/dog/1.npy"}) std::ofstream(path(name)).flush();
  EXPECT_EQ(image_folder_factory(options).missing,
            "the number of channels is unknown, because no image can be read (3 tried); the first is " + path("train/cat/1.npy") +
                ": cannot be read: the file is empty");
}

TEST_F(ImageFolderErrorsTest, TheFirstImagesAreThoseOfSeveralClasses) {
  std::vector<std::string> names;
  for (int i = 100; i < 160; ++i) {
    for (const char* folder : {"train/cat/", "train/dog/"}) names.push_back(folder + std::to_string(i) + ".jpg");
  }
  write(names);
  write({"train/ape/1.npy"});
  make_folder("train/bee");
  const auto images = first_images_of(find_class_folders(root()), data::ImageMode::kAuto);
  ASSERT_EQ(images.size(), kMostTriedImages);
  EXPECT_EQ(images.front(), path("train/ape/1.npy"));
  EXPECT_EQ(images[1], path("train/cat/100.jpg"));
  EXPECT_EQ(images.back(), path("train/dog/138.jpg"));
  EXPECT_EQ(first_images_of(find_class_folders(root()), data::ImageMode::kRaw).size(), 1U);
}

TEST_F(ImageFolderErrorsTest, ValidationWithoutAnyImageIsRefused) {
  write({"train/cat/1.jpg"});
  make_folder("val");
  EXPECT_THAT(failure(data::Split::kValidation),
              AllOf(StartsWith(path("val") + " has no images (files ending in .jpg "), HasSubstr("); add")));
  write({"val/cat/1.txt"});
  EXPECT_THAT(failure(data::Split::kValidation), AllOf(StartsWith(path("val") + " has no images ("), HasSubstr(") among its 1 file; add")));
}

TEST_F(ImageFolderErrorsTest, SaysWhatTheRootLacks) {
  EXPECT_EQ(what_is_missing(), path() + " has no class folders" + kRootRemedy);
  make_folder(".hidden");
  write({"1.jpg"});
  EXPECT_EQ(what_is_missing(), path() + " has no class folders" + kRootRemedy);
  make_folder("train");
  EXPECT_EQ(what_is_missing(), path("train") + " has no class folders" + kRootRemedy);
  ImageFolderOptions options;
  options.root = path("nowhere/data");
  EXPECT_EQ(image_folder_factory(options).missing, "there is no folder " + options.root + kRootRemedy);
  options.root = path("1.jpg");
  EXPECT_EQ(image_folder_factory(options).missing, options.root + " is not a folder" + kRootRemedy);
  EXPECT_EQ(failure_of(image_folder_factory(options), data::Split::kTrain),
            "dataset.root: " + options.root + " is not a folder" + kRootRemedy);
}

TEST_F(ImageFolderErrorsTest, FoldersThatChangeAfterTheStartAreNoticed) {
  write({"train/cat/1.jpg"});
  const auto made = factory();
  write({"train/dog/1.jpg"});
  EXPECT_EQ(failure_of(made, data::Split::kTrain),
            path("train") +
                " has 2 class folders, but had 1 when the program started; start the program again when the folder no longer changes");
  std::filesystem::remove_all(path("train"));
  EXPECT_EQ(failure_of(made, data::Split::kTrain), "dataset.root: " + path() + " has no class folders" + kRootRemedy);
}

// While an object exists, the user is not root, who could read all folders.
class OtherUser {
 public:
  OtherUser() : was_root_(::geteuid() == 0) {
    if (was_root_ && ::seteuid(65534) != 0) throw std::runtime_error("cannot become another user");
  }
  ~OtherUser() {
    if (was_root_ && ::seteuid(0) != 0) std::abort();
  }
  OtherUser(const OtherUser&) = delete;
  OtherUser& operator=(const OtherUser&) = delete;

 private:
  const bool was_root_;
};

TEST_F(ImageFolderErrorsTest, AFolderThatCannotBeListedIsNamed) {
  write({"train/cat/1.jpg", "train/cat/sub/2.jpg"});
  ::chmod(path().c_str(), 0755);
  ::chmod(path("train/cat/sub").c_str(), 0);
  {
    const OtherUser other;
    EXPECT_EQ(failure(data::Split::kTrain), "cannot list " + path("train/cat/sub") + ": Permission denied");
  }
  ::chmod(path("train").c_str(), 0);
  {
    const OtherUser other;
    EXPECT_EQ(what_is_missing(), "cannot list " + path("train") + ": Permission denied" + kRootRemedy);
  }
  for (const char* name : {"train", "train/cat/sub"}) ::chmod(path(name).c_str(), 0755);
}

TEST_F(ImageFolderErrorsTest, TheFirstOfSeveralFailuresIsReported) {
  for (int label = 10; label < 60; ++label) write({"train/c" + std::to_string(label) + "/0.jpg"});
  const auto folders = find_class_folders(root());
  for (const char* name : {"train/c57", "train/c31", "train/c58"}) std::filesystem::remove_all(path(name));
  for (int i = 0; i < 20; ++i) {
    try {
      list_images(folders, data::Split::kTrain, 8);
      ADD_FAILURE() << "no error";
    } catch (const DataError& error) {
      EXPECT_EQ(error.what(), "there is no folder " + path("train/c31"));
    }
  }
}

TEST_F(ImageFolderErrorsTest, SaysWhyAFileCannotBeRead) {
  write({"cat/1.jpg"});
  const auto dataset = open(data::Split::kTrain);
  const auto file = path("cat/1.jpg");
  EXPECT_EQ(dataset->origin(0).name, file);
  std::filesystem::resize_file(file, (uintmax_t{1} << 30) + 1);
  EXPECT_EQ(read_failure(*dataset), "cannot be read: it has more than 1.0 GiB; make the file smaller");
  std::filesystem::resize_file(file, 0);
  EXPECT_EQ(read_failure(*dataset), "cannot be read: the file is empty");
  std::filesystem::remove(file);
  EXPECT_EQ(read_failure(*dataset), "cannot be read: No such file or directory");
  make_folder("cat/1.jpg");
  EXPECT_EQ(read_failure(*dataset), "cannot be read: it is a folder, not a regular file");
  std::filesystem::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(read_failure(*dataset), "cannot be read: it is a pipe, not a regular file");
}

TEST_F(ImageFolderErrorsTest, NamesOfClassesAreUtf8) {
  write({"train/caf\xe9/1.jpg", "train/dog/2.jpg"});
  EXPECT_EQ(what_is_missing(), path("train") + " has the class folder \"caf\xe9\", whose name is not valid UTF-8; rename it");
  std::filesystem::rename(path("train/caf\xe9"), path("train/cat"));
  write({"train/cat/caf\xe9.jpg"});
  EXPECT_EQ(images(data::Split::kTrain).size(), 3U);
}

}  // namespace
}  // namespace trainer::datasets::test
