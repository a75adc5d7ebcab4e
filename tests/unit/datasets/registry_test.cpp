#include "datasets/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "config/node.h"
#include "datasets/cifar.h"
#include "datasets/synthetic.h"

namespace trainer::datasets::test {
namespace {

using ::testing::ElementsAre;

config::Part default_part(const std::string& name) {
  const auto family = dataset_family();
  return {name, config::find_kind(family, name)->make_options()};
}

config::Key key_of(config::Options& options, const std::string& name) {
  config::KeyTable table;
  options.describe(table);
  for (const auto& key : table.keys()) {
    if (key.name == name) return key;
  }
  throw std::logic_error("no key " + name);
}

void set_key(const config::Part& part, const std::string& name, const std::string& yaml) {
  const auto problem = key_of(*part.options, name).read(config::parse_yaml(yaml, "test"));
  ASSERT_FALSE(problem) << name << ": " << *problem;
}

TEST(DatasetRegistry, NamesEveryKind) { EXPECT_THAT(config::names_of(dataset_family()), ElementsAre("cifar10", "cifar100", "synthetic")); }

TEST(DatasetRegistry, UnknownNameIsAMistakeOfTheProgram) {
  EXPECT_THROW(dataset_info({"mnist", default_part("cifar10").options}), std::logic_error);
}

TEST(DatasetRegistry, CifarKindsDifferInTheirClasses) {
  EXPECT_EQ(dataset_info(default_part("cifar10")).num_classes, 10);
  EXPECT_EQ(dataset_info(default_part("cifar100")).num_classes, 100);
}

TEST(DatasetRegistry, CifarKeysReachTheirFields) {
  const auto part = default_part("cifar10");
  set_key(part, "root", "some/folder");
  set_key(part, "download", "true");
  const auto& options = dynamic_cast<const CifarOptions&>(*part.options);
  EXPECT_EQ(options.root, "some/folder");
  EXPECT_TRUE(options.download);
}

TEST(DatasetRegistry, SyntheticKeysReachTheirFields) {
  const auto part = default_part("synthetic");
  set_key(part, "num_train", "11");
  set_key(part, "num_validation", "7");
  set_key(part, "shape", "[10]");
  set_key(part, "num_classes", "0");
  set_key(part, "num_targets", "3");
  set_key(part, "seed", "5");
  const auto& options = dynamic_cast<const SyntheticOptions&>(*part.options);
  EXPECT_EQ(options.num_train, 11);
  EXPECT_EQ(options.num_validation, 7);
  EXPECT_THAT(options.shape, ElementsAre(10));
  EXPECT_EQ(options.num_classes, 0);
  EXPECT_EQ(options.num_targets, 3);
  EXPECT_EQ(options.seed, 5);
  set_key(part, "labels", "zero");
  EXPECT_EQ(options.labels, SyntheticLabels::kZero);
}

TEST(DatasetRegistry, OpensWhatAPartNames) {
  const auto logger = make_quiet_logger();
  const auto cifar10 = default_part("cifar10");
  set_key(cifar10, "root", TRAINER_SOURCE_DIR "/datasets/cifar10_sample");
  EXPECT_EQ(open_dataset(cifar10, Split::kTrain, *logger)->size(), 2000);
  EXPECT_EQ(open_dataset(cifar10, Split::kValidation, *logger)->size(), 500);
  const auto synthetic = default_part("synthetic");
  set_key(synthetic, "num_train", "3");
  EXPECT_EQ(open_dataset(synthetic, Split::kTrain, *logger)->size(), 3);
  EXPECT_EQ(open_dataset(synthetic, Split::kValidation, *logger)->size(), 256);
}

TEST(DatasetRegistry, InfoIsTheSameBeforeAndAfterOpening) {
  const auto logger = make_quiet_logger();
  for (const std::string name : {"cifar10", "synthetic"}) {
    const auto part = default_part(name);
    if (name == "cifar10") set_key(part, "root", TRAINER_SOURCE_DIR "/datasets/cifar10_sample");
    const auto before = dataset_info(part);
    const auto after = open_dataset(part, Split::kTrain, *logger)->info();
    EXPECT_EQ(after.shape, before.shape) << name;
    EXPECT_EQ(after.is_image, before.is_image) << name;
    EXPECT_EQ(after.num_classes, before.num_classes) << name;
    EXPECT_EQ(after.num_targets, before.num_targets) << name;
  }
}

class DatasetKind : public ::testing::TestWithParam<std::string> {};

TEST_P(DatasetKind, IsDocumentedAndStrict) {
  const auto family = dataset_family();
  EXPECT_FALSE(config::find_kind(family, GetParam())->doc.empty());
  const auto part = default_part(GetParam());
  config::KeyTable table;
  part.options->describe(table);
  EXPECT_FALSE(table.keys().empty());
  for (const auto& key : table.keys()) {
    EXPECT_FALSE(key.doc.empty()) << key.name;
    const auto before = config::to_inline_yaml(key.write());
    for (const auto& refused : key.refused_examples) {
      EXPECT_TRUE(key.read(config::parse_yaml(refused, "test"))) << key.name << " accepts " << refused;
    }
    EXPECT_EQ(config::to_inline_yaml(key.write()), before) << key.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, DatasetKind, ::testing::ValuesIn(config::names_of(dataset_family())),
                         [](const auto& kind) { return kind.param; });

}  // namespace
}  // namespace trainer::datasets::test
