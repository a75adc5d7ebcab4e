#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "datasets/image_folder.h"
#include "tests/testing/temporary_folder.h"
#include "tests/unit/datasets/failure_of.h"
#include "trainer/error.h"

namespace trainer::datasets::test {

// A data set in a temporary folder.
class ImageFolderTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name = "") const { return name.empty() ? root() : root() + "/" + name; }

  // Writes files whose content is their name.
  void write(const std::vector<std::string>& names) const {
    for (const auto& name : names) {
      make_folder(std::filesystem::path(name).parent_path());
      std::ofstream(path(name)) << name;
    }
  }
  void make_folder(const std::string& name) const { std::filesystem::create_directories(path(name)); }
  void link(const std::string& target, const std::string& name) const { std::filesystem::create_symlink(target, path(name)); }

  data::DatasetFactory factory() const {
    ImageFolderOptions options;
    options.root = root();
    return image_folder_factory(options);
  }
  std::unique_ptr<data::Dataset> open(data::Split split) const { return factory().open(split, *make_quiet_logger()); }

  // "LABEL PATH" of each image, relative to the data set's folder.
  std::vector<std::string> images(data::Split split) const {
    std::vector<std::string> lines;
    const auto dataset = open(split);
    data::Scratch scratch;
    for (int64_t i = 0; i < dataset->size(); ++i) {
      const auto file = dataset->origin(i).name.substr(root().size() + 1);
      lines.push_back(std::to_string(label_of(*dataset, i)) + ' ' + file);
    }
    return lines;
  }

  // The text of the DataError that opening the split throws.
  std::string failure(data::Split split) const { return failure_of(factory(), split); }
  // The error of factory() for a data set that cannot be used. Expects that opening either split throws the same error.
  std::string what_is_missing() const {
    const auto made = factory();
    EXPECT_EQ(made.info.num_classes, data::kUnknownClasses);
    EXPECT_THAT(made.info.class_names, ::testing::IsEmpty());
    EXPECT_EQ(failure_of(made, data::Split::kTrain), "dataset.root: " + made.missing);
    EXPECT_EQ(failure_of(made, data::Split::kValidation), "dataset.root: " + made.missing);
    return made.missing;
  }
  // The reason why the first training image cannot be read.
  static std::string read_failure(const data::Dataset& dataset) {
    try {
      data::Scratch scratch;
      dataset.read(0, scratch);
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(dynamic_cast<const Error*>(&error), nullptr);
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return "";
  }

  std::string root() const { return folder_.path().string(); }

 private:
  // The label of an image. If the image is a link to a missing file, creates that file, so that it can be read.
  static int64_t label_of(const data::Dataset& dataset, int64_t index) {
    if (!std::filesystem::exists(dataset.origin(index).name)) std::ofstream(dataset.origin(index).name) << "x";
    data::Scratch scratch;
    return dataset.read(index, scratch).target.label;
  }

  trainer::testing::TemporaryFolder folder_;
};

}  // namespace trainer::datasets::test
