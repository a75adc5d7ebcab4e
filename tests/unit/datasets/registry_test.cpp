#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>

#include "base/keys/key.h"
#include "config/yaml.h"
#include "datasets/cifar.h"
#include "datasets/dataset_registry.h"
#include "datasets/lmdb_file.h"
#include "datasets/synthetic.h"
#include "tests/testing/refused_values.h"
#include "tests/testing/temporary_folder.h"
#include "tests/unit/datasets/small_files.h"

namespace trainer::datasets::test {
namespace {

using ::testing::ElementsAre;

data::DatasetInfo default_info(const std::string& name) { return dataset_registry().make(dataset_registry().configure(name)).info; }

Key key_of(Options& options, const std::string& name) {
  const SectionKeys section(options);
  if (const auto* key = section.find(name)) return *key;
  throw std::logic_error("no key " + name);
}

void set_key(const ComponentConfig& component, const std::string& name, const std::string& yaml) {
  const auto problem = key_of(*component.options, name).read(config::parse_yaml(yaml, "test"));
  ASSERT_FALSE(problem) << name << ": " << *problem;
}

TEST(DatasetRegistry, AnUnknownNameThrowsLogicError) {
  EXPECT_THROW(dataset_registry().make({"no_dataset", dataset_registry().configure("cifar10").options}), std::logic_error);
}

TEST(DatasetRegistry, CifarKindsDifferInTheirClasses) {
  EXPECT_EQ(default_info("cifar10").num_classes, 10);
  EXPECT_EQ(default_info("cifar100").num_classes, 100);
}

TEST(DatasetRegistry, CifarKeysReachTheirFields) {
  const auto component = dataset_registry().configure("cifar10");
  set_key(component, "root", "some/folder");
  set_key(component, "download", "true");
  const auto& options = dynamic_cast<const CifarOptions&>(*component.options);
  EXPECT_EQ(options.root, "some/folder");
  EXPECT_TRUE(options.download);
}

TEST(DatasetRegistry, SyntheticKeysReachTheirFields) {
  const auto component = dataset_registry().configure("synthetic");
  set_key(component, "num_train", "11");
  set_key(component, "num_validation", "7");
  set_key(component, "shape", "[10]");
  set_key(component, "num_classes", "0");
  set_key(component, "num_targets", "3");
  set_key(component, "seed", "5");
  const auto& options = dynamic_cast<const SyntheticOptions&>(*component.options);
  EXPECT_EQ(options.num_train, 11);
  EXPECT_EQ(options.num_validation, 7);
  EXPECT_THAT(options.shape, ElementsAre(10));
  EXPECT_EQ(options.num_classes, 0);
  EXPECT_EQ(options.num_targets, 3);
  EXPECT_EQ(options.seed, 5);
  set_key(component, "labels", "zero");
  EXPECT_EQ(options.labels, SyntheticLabels::kZero);
}

TEST(DatasetRegistry, OpensTheConfiguredDataset) {
  const auto logger = make_quiet_logger();
  const auto cifar10 = dataset_registry().configure("cifar10");
  set_key(cifar10, "root", TRAINER_SOURCE_DIR "/datasets/cifar10_sample");
  EXPECT_EQ(dataset_registry().make(cifar10).open(data::Split::kTrain, *logger)->size(), 2000);
  EXPECT_EQ(dataset_registry().make(cifar10).open(data::Split::kValidation, *logger)->size(), 500);
  const auto synthetic = dataset_registry().configure("synthetic");
  set_key(synthetic, "num_train", "3");
  EXPECT_EQ(dataset_registry().make(synthetic).open(data::Split::kTrain, *logger)->size(), 3);
  EXPECT_EQ(dataset_registry().make(synthetic).open(data::Split::kValidation, *logger)->size(), 256);
}

// The data set with its default options, except that it reads the files in `root` if it needs files.
data::DatasetFactory make_in(const std::string& name, const std::filesystem::path& root) {
  const auto component = dataset_registry().configure(name);
  const SectionKeys section(*component.options);
  for (const auto& key : section.keys) {
    if (key.name == "root") set_key(component, key.name, root.string());
    if (name == "csv" && (key.name == "train" || key.name == "validation"))
      set_key(component, key.name, (root / (key.name + ".csv")).string());
  }
  return dataset_registry().make(component);
}

// Writes a few samples for every data set that reads files. Encoded images are 100 bytes of zeros.
void write_files(const std::filesystem::path& root) {
  const auto write = [&](const std::string& file, size_t record_bytes) {
    std::filesystem::create_directories((root / file).parent_path());
    std::ofstream(root / file, std::ios::binary) << std::string(record_bytes, '\0');
  };
  for (const char* name :
       {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}) {
    write(std::string("cifar-10-batches-bin/") + name, 3073);
  }
  for (const char* name : {"train.bin", "test.bin"}) write(std::string("cifar-100-binary/") + name, 3074);
  for (const std::string folder : {"MNIST/raw/", "FashionMNIST/raw/"}) {
    for (const std::string split : {"train", "t10k"}) {
      write_bytes(root / (folder + split + "-images-idx3-ubyte"), idx_images(1));
      write_bytes(root / (folder + split + "-labels-idx1-ubyte"), idx_labels({0}));
    }
  }
  for (const char* name : {"train/cat/1.jpg", "train/dog/2.jpg", "val/dog/3.jpg"}) write(name, 100);
  write_bytes(root / "tiny-imagenet-200/wnids.txt", "n1\n");
  write_bytes(root / "tiny-imagenet-200/val/val_annotations.txt", "2.JPEG\tn1\n");
  for (const char* name : {"train/n1/images/1.JPEG", "val/images/2.JPEG"}) write(std::string("tiny-imagenet-200/") + name, 100);
  write_bytes(root / "train.csv", "train/cat/1.jpg,cat\ntrain/dog/2.jpg,dog\n");
  write_bytes(root / "validation.csv", "val/dog/3.jpg,dog\n");
  for (const auto split : {data::Split::kTrain, data::Split::kValidation}) {
    const auto source = make_in("csv", root).open(split, *make_quiet_logger());
    PackWriter writer(root / (split == data::Split::kTrain ? kPackedTrain : kPackedValidation),
                      {.source = "csv", .num_samples = source->size(), .samples = source->info()}, *source);
    const std::vector<uint8_t> file(100);
    for (int64_t i = 0; i < source->size(); ++i) writer.add(file_entry(file));
    writer.commit();
  }
}

class EveryDataset : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryDataset, MatchesItsInfo) {
  const trainer::testing::TemporaryFolder folder;
  write_files(folder.path());
  const auto factory = make_in(GetParam(), folder.path());
  const auto logger = make_quiet_logger();
  for (const auto split : {data::Split::kTrain, data::Split::kValidation}) {
    const auto dataset = factory.open(split, *logger);
    EXPECT_EQ(dataset->info().shape, factory.info.shape);
    EXPECT_EQ(dataset->info().is_image, factory.info.is_image);
    EXPECT_EQ(dataset->info().num_classes, factory.info.num_classes);
    EXPECT_EQ(dataset->info().num_targets, factory.info.num_targets);
    EXPECT_EQ(dataset->info().class_names, factory.info.class_names);
    ASSERT_GT(dataset->size(), 0);
    data::Scratch scratch;
    const auto sample = dataset->read(dataset->size() - 1, scratch);
    EXPECT_EQ(dataset->label(dataset->size() - 1), sample.target.label);
    const auto num_values = std::accumulate(factory.info.shape.begin(), factory.info.shape.end(), int64_t{1}, std::multiplies<>());
    if (!sample.encoded.empty()) {
      EXPECT_TRUE(factory.info.is_image);
      EXPECT_EQ(sample.encoded.size(), 100U);
    } else if (factory.info.is_image) {
      EXPECT_EQ(sample.image, data::ImageView::whole(sample.image.pixels, static_cast<int>(factory.info.shape[0]),
                                                     static_cast<int>(factory.info.shape[1]), static_cast<int>(factory.info.shape[2])));
    } else {
      EXPECT_EQ(static_cast<int64_t>(sample.values.size()), num_values);
    }
    EXPECT_GE(sample.target.label, 0);
    EXPECT_LT(sample.target.label, std::max<int64_t>(factory.info.num_classes, 1));
  }
}

TEST_P(EveryDataset, IsConfiguredWithoutItsFiles) {
  const trainer::testing::TemporaryFolder folder;
  for (const auto& factory : {make_in(GetParam(), folder.path() / "nowhere"), make_in(GetParam(), folder.path())}) {
    EXPECT_EQ(factory.info.num_classes == data::kUnknownClasses, !factory.missing.empty());
    if (!factory.info.class_names.empty()) {
      EXPECT_EQ(static_cast<int64_t>(factory.info.class_names.size()), factory.info.num_classes);
    }
  }
}

TEST_P(EveryDataset, IsDocumentedAndStrict) {
  EXPECT_FALSE(dataset_registry().find(GetParam())->doc.empty());
  const auto component = dataset_registry().configure(GetParam());
  const SectionKeys section(*component.options);
  EXPECT_FALSE(section.keys.empty());
  for (const auto& key : section.keys) {
    EXPECT_FALSE(key.doc.empty()) << key.name;
    const auto before = config::to_inline_yaml(key.write());
    for (const auto& refused : trainer::testing::refused_values(key)) {
      EXPECT_TRUE(key.read(config::parse_yaml(refused, "test"))) << key.name << " accepts " << refused;
    }
    EXPECT_EQ(config::to_inline_yaml(key.write()), before) << key.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryDataset, ::testing::ValuesIn(dataset_registry().names()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace trainer::datasets::test
