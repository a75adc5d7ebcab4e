#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "config/load.h"
#include "run/recipe/check.h"
#include "run/recipe/registries.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer::recipe {
namespace {

namespace fs = std::filesystem;

// Returns the resolved file of an experiment with these sections.
Node resolved(const std::string& model, const std::string& dataset, const std::vector<std::string>& overrides = {}) {
  const auto registries = all_registries();
  auto experiment = config::load_text("experiment: a\nmodel: " + model + "\ndataset: " + dataset + "\ntraining: {epochs: 1}\n", "x.yaml",
                                      overrides, registries);
  return config::parse_yaml(config::to_yaml(experiment, registries), "resolved");
}

std::string value_at(const Node& root, const char* section, const char* key) {
  return config::to_inline_yaml(root.find(section)->value.find(key)->value);
}

class CompleteFolder : public ::testing::Test {
 protected:
  void add_class(const std::string& path) { fs::create_directories(folder_.path() / path); }
  std::string dataset() const { return "{name: image_folder, root: " + folder_.path().string() + "}"; }

  trainer::testing::TemporaryFolder folder_;
};

TEST(Complete, OutputsAreThoseOfTheDataSet) {
  EXPECT_EQ(value_at(resolved("{name: resnet20}", "{name: cifar100}"), "model", "num_classes"), "100");
  EXPECT_EQ(value_at(resolved("{name: resnet20, num_classes: auto}", "{name: cifar10}"), "model", "num_classes"), "10");
  EXPECT_EQ(value_at(resolved("{name: demo_conv}", "{name: synthetic, num_classes: 0, num_targets: 3}", {"loss={name: mse}"}), "model",
                     "num_classes"),
            "3");
  EXPECT_EQ(value_at(resolved("{name: demo_linear}", "{name: synthetic, shape: [10]}"), "model", "out_features"), "10");
}

TEST(Complete, SeveralThreadsMayUseTheSameRegistries) {
  const auto registries = all_registries();
  std::vector<std::thread> threads;
  for (int classes = 2; classes < 6; ++classes) {
    threads.emplace_back([&registries, classes] {
      const auto text = fmt::format(
          "experiment: a\nmodel: {{name: resnet20}}\ndataset: {{name: synthetic, num_classes: {}}}\ntraining: {{epochs: 1}}\n", classes);
      for (int i = 0; i < 50; ++i) {
        const auto experiment = config::load_text(text, "x.yaml", {}, registries);
        const auto file = config::parse_yaml(config::to_yaml(experiment, registries), "resolved");
        EXPECT_EQ(value_at(file, "model", "num_classes"), std::to_string(classes));
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Complete, ChannelsAreThoseOfTheDataSet) {
  for (const char* name : {"resnet20", "resnet18", "wide_resnet", "vgg11_bn"}) {
    const auto model = fmt::format("{{name: {}}}", name);
    EXPECT_EQ(value_at(resolved(model, "{name: cifar10}"), "model", "in_channels"), "3") << name;
    EXPECT_EQ(value_at(resolved(model, "{name: synthetic, shape: [2, 32, 32]}"), "model", "in_channels"), "2") << name;
  }
  EXPECT_EQ(value_at(resolved("{name: resnet20}", "{name: mnist}"), "model", "in_channels"), "1");
}

TEST(Complete, ADataSetWithAValidationSetHoldsNothingOutUnlessAsked) {
  EXPECT_EQ(value_at(resolved("{name: resnet20}", "{name: cifar10}"), "dataset", "validation_split"), "0");
  EXPECT_EQ(value_at(resolved("{name: resnet20}", "{name: cifar10, validation_split: 0.25}"), "dataset", "validation_split"), "0.25");
  EXPECT_EQ(value_at(resolved("{name: resnet20}", "{name: cifar10}"), "dataset", "train_transforms"), "[]");
}

TEST_F(CompleteFolder, AFolderOfClassesIsSplit) {
  for (const char* name : {"cat", "dog", "owl"}) add_class(name);
  const auto file = resolved("{name: resnet18}", dataset());
  EXPECT_EQ(value_at(file, "model", "num_classes"), "3");
  EXPECT_EQ(value_at(file, "dataset", "validation_split"), "0.1");
  EXPECT_EQ(value_at(resolved("{name: resnet18}", dataset(), {"dataset.validation_split=0.5"}), "dataset", "validation_split"), "0.5");
}

TEST_F(CompleteFolder, AFolderWithValidationIsNot) {
  for (const char* name : {"train/cat", "train/dog", "val/cat"}) add_class(name);
  const auto file = resolved("{name: resnet18}", dataset());
  EXPECT_EQ(value_at(file, "model", "num_classes"), "2");
  EXPECT_EQ(value_at(file, "dataset", "validation_split"), "0");
}

TEST_F(CompleteFolder, TransformsOfTheDataSetReplaceThoseThatAreNotGiven) {
  for (const char* name : {"train/cat", "train/dog", "val/cat"}) add_class(name);
  const auto file = resolved("{name: resnet18}", dataset());
  const std::string normalize = "{normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}]";
  EXPECT_EQ(value_at(file, "dataset", "train_transforms"),
            "[{random_resized_crop: {size: 224, scale: [0.08, 1], ratio: [0.75, 1.3333333333333333], interpolation: bilinear}}, "
            "{random_horizontal_flip: {p: 0.5, alternate: false}}, " +
                normalize);
  EXPECT_EQ(value_at(file, "dataset", "validation_transforms"),
            "[{resize: {size: 256, longest: null, interpolation: bilinear}}, {center_crop: {size: 224}}, " + normalize);
  const auto own = resolved("{name: resnet18}", dataset(), {"dataset.train_transforms=[resize: {size: [64, 48]}]"});
  EXPECT_EQ(value_at(own, "dataset", "train_transforms"), "[{resize: {size: [64, 48], longest: null, interpolation: bilinear}}]");
  EXPECT_EQ(value_at(own, "dataset", "validation_transforms"), value_at(file, "dataset", "validation_transforms"));
}

TEST_F(CompleteFolder, WithoutTheFolderTheNumberOfClassesMustBeGiven) {
  const std::string dataset = "{name: image_folder, root: " + (folder_.path() / "missing").string() + "}";
  try {
    resolved("{name: resnet18}", dataset);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.what(),
              "x.yaml:3:37: dataset.root: there is no folder " + (folder_.path() / "missing").string() +
                  "; set dataset.root to a folder that contains one folder of images per class, either directly or in train/ and val/");
  }
  const auto file = resolved("{name: resnet18, num_classes: 7}", dataset);
  EXPECT_EQ(value_at(file, "model", "num_classes"), "7");
  EXPECT_EQ(value_at(file, "dataset", "validation_split"), "auto");
}

TEST_F(CompleteFolder, WithoutACsvFileItsKeyIsNamed) {
  const auto file = (folder_.path() / "missing.csv").string();
  try {
    resolved("{name: resnet18}", "{name: csv, train: " + file + "}");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.what(), "x.yaml:3:29: dataset.train: cannot read " + file +
                                ": No such file or directory; give a CSV file with a line path,label for each image");
  }
}

}  // namespace
}  // namespace trainer::recipe
