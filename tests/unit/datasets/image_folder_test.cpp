#include "datasets/image_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spdlog/sinks/ostream_sink.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/signal.h"
#include "datasets/folder_listing.h"
#include "tests/unit/datasets/image_folder_case.h"
#include "trainer/error.h"

namespace trainer::datasets::test {
namespace {

using ::testing::ElementsAre;

TEST_F(ImageFolderTest, TrainingAndValidationHaveFoldersOfTheirOwn) {
  write({"train/dog/1.jpg", "train/cat/2.jpg", "train/cat/1.jpg", "train/notes.txt", "val/cat/3.jpg", "val/dog/4.jpg", "test/5.jpg"});
  const auto made = factory();
  EXPECT_TRUE(made.has_validation);
  EXPECT_EQ(made.missing, "");
  EXPECT_THAT(made.info.shape, ElementsAre(3, data::kAnySize, data::kAnySize));
  EXPECT_TRUE(made.info.is_image);
  EXPECT_EQ(made.info.num_classes, 2);
  EXPECT_THAT(made.info.class_names, ElementsAre("cat", "dog"));
  EXPECT_THAT(images(data::Split::kTrain), ElementsAre("0 train/cat/1.jpg", "0 train/cat/2.jpg", "1 train/dog/1.jpg"));
  EXPECT_THAT(images(data::Split::kValidation), ElementsAre("0 val/cat/3.jpg", "1 val/dog/4.jpg"));
  for (const auto split : {data::Split::kTrain, data::Split::kValidation})
    EXPECT_THAT(open(split)->info().class_names, ElementsAre("cat", "dog"));
}

TEST_F(ImageFolderTest, TheFolderOfValidationHasOneOfThreeNames) {
  for (const std::string name : {"val", "valid", "validation"}) {
    write({"train/cat/1.jpg", name + "/cat/2.jpg"});
    EXPECT_TRUE(factory().has_validation);
    EXPECT_THAT(images(data::Split::kValidation), ElementsAre("0 " + name + "/cat/2.jpg"));
    std::filesystem::remove_all(path(name));
  }
}

TEST_F(ImageFolderTest, WhatMacOsAndWindowsAddIsIgnored) {
  write({"cat/1.jpg", "cat/Thumbs.db", "cat/.DS_Store", "dog/1.jpg", "dog/desktop.ini", "dog/__MACOSX/._1.jpg", "__MACOSX/cat/2.jpg"});
  EXPECT_THAT(factory().info.class_names, ElementsAre("cat", "dog"));
  EXPECT_THAT(images(data::Split::kTrain), ElementsAre("0 cat/1.jpg", "1 dog/1.jpg"));
}

TEST_F(ImageFolderTest, SeveralFoldersForValidationAreRefused) {
  write({"train/cat/1.jpg", "val/cat/2.jpg", "validation/cat/3.jpg"});
  EXPECT_EQ(what_is_missing(), path() + " has several folders for validation (val, validation); keep only one of them");
}

TEST_F(ImageFolderTest, FoldersThatLookLikeSplitsAreNoClasses) {
  for (const std::string name : {"Train", "val", "TEST"}) {
    write({name + "/cat/1.jpg", "dog/1.jpg"});
    EXPECT_EQ(what_is_missing(),
              path() + " has no folder train, but the folder \"" + name +
                  "\", which is probably not a class; name the folder of training images train and that of validation images val, or "
                  "set dataset.root to the folder that contains the class folders");
    std::filesystem::remove_all(path(name));
  }
}

TEST_F(ImageFolderTest, ValidationMayBeMissing) {
  write({"train/cat/1.jpg", "train/dog/1.jpg"});
  const auto made = factory();
  EXPECT_FALSE(made.has_validation);
  EXPECT_EQ(made.info.num_classes, 2);
  EXPECT_EQ(failure(data::Split::kValidation),
            "dataset.root: " + path() +
                " has no folder val, valid or validation; to hold out some of the training images, set dataset.validation_split");
}

TEST_F(ImageFolderTest, ClassFoldersMayBeInTheRoot) {
  // A file named train is not a folder of training images.
  write({"dog/1.jpg", "cat/1.jpg", "train"});
  EXPECT_FALSE(factory().has_validation);
  EXPECT_THAT(factory().info.class_names, ElementsAre("cat", "dog"));
  EXPECT_THAT(images(data::Split::kTrain), ElementsAre("0 cat/1.jpg", "1 dog/1.jpg"));
}

// The list of torchvision's ImageFolder for the same files, but without hidden files, which ImageFolder would include.
TEST_F(ImageFolderTest, ListsFilesInTheOrderOfTorchvision) {
  write({"train/b/2.jpg",           "train/b/10.JPG",
         "train/b/A.Png",           "train/b/a.jpeg",
         "train/b/notes.txt",       "train/b/sub/1.webp",
         "train/b/sub/deep/1.tif",  "train/b/sub-a/1.bmp",
         "train/b/sub.d/1.TIFF",    "train/b/sub0/1.jpg",
         "train/b/Z/1.ppm",         "train/b/é/1.pgm",
         "train/b/z/jpg",           "train/b/z/1.gif",
         "train/b/z/a.b.jpg",       "train/b/_.jpg",
         "train/a/only/here/1.jpg", "train/C/1.jpg",
         "train/é/1.jpg",           "elsewhere/9.png",
         "elsewhere/more/8.png",    "one.jpg",
         "train/.e/1.jpg",          "train/b/.f/1.jpg",
         "train/b/.g.jpg"});
  link("../../elsewhere", "train/b/linked");
  link("../../one.jpg", "train/b/link.jpg");
  link("missing.jpg", "train/b/gone.jpg");
  link("../elsewhere", "train/d");
  EXPECT_THAT(factory().info.class_names, ElementsAre("C", "a", "b", "d", "é"));
  EXPECT_THAT(images(data::Split::kTrain),
              ElementsAre("0 train/C/1.jpg", "1 train/a/only/here/1.jpg", "2 train/b/10.JPG", "2 train/b/2.jpg", "2 train/b/A.Png",
                          "2 train/b/_.jpg", "2 train/b/a.jpeg", "2 train/b/gone.jpg", "2 train/b/link.jpg", "2 train/b/Z/1.ppm",
                          "2 train/b/linked/9.png", "2 train/b/linked/more/8.png", "2 train/b/sub/1.webp", "2 train/b/sub-a/1.bmp",
                          "2 train/b/sub.d/1.TIFF", "2 train/b/sub/deep/1.tif", "2 train/b/sub0/1.jpg", "2 train/b/z/a.b.jpg",
                          "2 train/b/é/1.pgm", "3 train/d/9.png", "3 train/d/more/8.png", "4 train/é/1.jpg"));
}

TEST_F(ImageFolderTest, EntersNoFolderTwice) {
  write({"train/cat/1.jpg", "train/cat/sub/2.jpg", "train/dog/3.jpg", "val/cat/4.jpg"});
  link(".", "train/cat/itself");
  link("..", "train/cat/sub/its_parent");
  link("sub", "train/cat/zzz");
  link("..", "train/cat/all_classes");
  link("../..", "train/cat/all_splits");
  link("/", "train/cat/everything");
  EXPECT_THAT(images(data::Split::kTrain), ElementsAre("0 train/cat/1.jpg", "0 train/cat/sub/2.jpg", "1 train/dog/3.jpg"));
  // With two paths to one folder, the first by name counts.
  link("sub", "train/cat/aaa");
  EXPECT_THAT(images(data::Split::kTrain), ElementsAre("0 train/cat/1.jpg", "0 train/cat/aaa/2.jpg", "1 train/dog/3.jpg"));
  // The same folder may belong to several classes.
  link("../dog", "train/cat/too");
  EXPECT_THAT(images(data::Split::kTrain),
              ElementsAre("0 train/cat/1.jpg", "0 train/cat/aaa/2.jpg", "0 train/cat/too/3.jpg", "1 train/dog/3.jpg"));
}

TEST_F(ImageFolderTest, AClassWithoutValidationImagesKeepsItsLabel) {
  write({"train/a/1.jpg", "train/b/1.jpg", "train/c/1.jpg", "train/d/1.jpg", "val/b/1.jpg", "val/d/1.jpg", "val/d/2.jpg"});
  make_folder("val/c");
  EXPECT_THAT(images(data::Split::kValidation), ElementsAre("1 val/b/1.jpg", "3 val/d/1.jpg", "3 val/d/2.jpg"));
  EXPECT_EQ(open(data::Split::kValidation)->info().num_classes, 4);
}

TEST_F(ImageFolderTest, TheListDoesNotDependOnTheThreads) {
  std::vector<std::string> names;
  for (int label = 0; label < 50; ++label) {
    for (int i = 0; i <= label % 7; ++i) names.push_back("train/c" + std::to_string(label) + "/" + std::to_string(i) + ".jpg");
    names.push_back("train/c" + std::to_string(label) + "/sub/0.jpg");
  }
  write(names);
  const auto folders = find_class_folders(root());
  const auto expected = list_images(folders, data::Split::kTrain, 1);
  EXPECT_EQ(expected.size(), static_cast<int64_t>(names.size()));
  for (const int num_threads : {2, 8, 100}) {
    const auto list = list_images(folders, data::Split::kTrain, num_threads);
    ASSERT_EQ(list.size(), expected.size());
    for (int64_t i = 0; i < list.size(); ++i) {
      EXPECT_EQ(list.path(i), expected.path(i));
      EXPECT_EQ(list.label(i), expected.label(i));
    }
  }
}

TEST_F(ImageFolderTest, LogsWhatItFound) {
  write({"train/cat/1.jpg", "train/dog/1.jpg", "train/dog/2.jpg", "val/cat/1.jpg"});
  std::ostringstream text;
  const auto sink = std::make_shared<spdlog::sinks::ostream_sink_st>(text);
  sink->set_pattern("%v");
  Logger logger("test", sink);
  factory().open(data::Split::kTrain, logger);
  factory().open(data::Split::kValidation, logger);
  EXPECT_EQ(text.str(), path("train") + ": 3 images in 2 classes\n" + path("val") + ": 1 image in 1 of 2 classes\n");
}

TEST_F(ImageFolderTest, ReadsWholeFiles) {
  write({"cat/1.jpg", "dog/a_longer_name.jpg", "dog/b.jpg"});
  const auto dataset = open(data::Split::kTrain);
  data::Scratch scratch;
  for (const int64_t index : {1, 2, 0, 1}) {
    const auto sample = dataset->read(index, scratch);
    EXPECT_EQ(path(std::string(sample.encoded.begin(), sample.encoded.end())), dataset->origin(index).name);
    EXPECT_EQ(sample.target.label, index == 0 ? 0 : 1);
    EXPECT_EQ(sample.image.pixels, nullptr);
    EXPECT_EQ(sample.encoded.data(), scratch.bytes.data());
  }
}

TEST_F(ImageFolderTest, DefaultTransformsAreThoseOfImageNet) {
  const auto transforms = factory().default_transforms;
  EXPECT_EQ(transforms.train,
            "[{random_resized_crop: {size: 224}}, random_horizontal_flip, {normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, "
            "0.225]}}]");
  EXPECT_EQ(transforms.validation,
            "[{resize: {size: 256}}, {center_crop: {size: 224}}, {normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}]");
}

using ImageFolderDeathTest = ImageFolderTest;

TEST_F(ImageFolderDeathTest, AStopRequestEndsTheListing) {
  write({"train/cat/1.jpg"});
  const auto run = [this] {
    install_stop_handlers();
    ::raise(SIGTERM);
    try {
      open(data::Split::kTrain);
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
      ::_exit(static_cast<int>(error.exit_code()));
    }
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(75), "^stopped on request while listing /.*/train/cat$");
}

}  // namespace
}  // namespace trainer::datasets::test
