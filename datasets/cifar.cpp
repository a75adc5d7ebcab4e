#include "datasets/cifar.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "datasets/files.h"
#include "trainer/error.h"

namespace trainer::datasets {
namespace {

namespace fs = std::filesystem;

constexpr int kChannels = 3;
constexpr int kSide = 32;
constexpr size_t kImageBytes = size_t{kChannels} * kSide * kSide;

void check_records(const CifarLayout& layout, const MappedFile& file) {
  const auto bytes = file.bytes();
  const size_t record_bytes = layout.label_counts.size() + kImageBytes;
  const auto fail = [&](const std::string& what) { refuse_published_file(layout.source, file.path(), what); };
  if (bytes.empty()) fail("the file is empty");
  if (bytes.size() % record_bytes != 0) {
    fail(fmt::format("its size of {} bytes is not a multiple of the {}-byte records of {}", bytes.size(), record_bytes,
                     layout.source.title));
  }
  for (size_t record = 0; record < bytes.size() / record_bytes; ++record) {
    for (size_t i = 0; i < layout.label_counts.size(); ++i) {
      const int label = bytes[record * record_bytes + i];
      if (label < layout.label_counts[i]) continue;
      fail(fmt::format("record {} (from 0) has the label {}, but the labels of {} are 0 to {}", record, label, layout.source.title,
                       layout.label_counts[i] - 1));
    }
  }
}

// The names of the fine labels.
std::vector<std::string> cifar100_class_names() {
  return {"apple",       "aquarium_fish", "baby",         "bear",       "beaver",       "bed",        "bee",         "beetle",   "bicycle",
          "bottle",      "bowl",          "boy",          "bridge",     "bus",          "butterfly",  "camel",       "can",      "castle",
          "caterpillar", "cattle",        "chair",        "chimpanzee", "clock",        "cloud",      "cockroach",   "couch",    "crab",
          "crocodile",   "cup",           "dinosaur",     "dolphin",    "elephant",     "flatfish",   "forest",      "fox",      "girl",
          "hamster",     "house",         "kangaroo",     "keyboard",   "lamp",         "lawn_mower", "leopard",     "lion",     "lizard",
          "lobster",     "man",           "maple_tree",   "motorcycle", "mountain",     "mouse",      "mushroom",    "oak_tree", "orange",
          "orchid",      "otter",         "palm_tree",    "pear",       "pickup_truck", "pine_tree",  "plain",       "plate",    "poppy",
          "porcupine",   "possum",        "rabbit",       "raccoon",    "ray",          "road",       "rocket",      "rose",     "sea",
          "seal",        "shark",         "shrew",        "skunk",      "skyscraper",   "snail",      "snake",       "spider",   "squirrel",
          "streetcar",   "sunflower",     "sweet_pepper", "table",      "tank",         "telephone",  "television",  "tiger",    "tractor",
          "train",       "trout",         "tulip",        "turtle",     "wardrobe",     "whale",      "willow_tree", "wolf",     "woman",
          "worm"};
}

MappedFile open_file(const CifarLayout& layout, const fs::path& path) {
  const FileAccess access("reading", path);
  if (!is_there(path)) refuse_published_file(layout.source, path, "the file is missing");
  try {
    MappedFile file(path);
    check_records(layout, file);
    return file;
  } catch (const DataError&) {
    throw;
  } catch (const Error& error) {
    throw DataError(error.what());
  }
}

std::unique_ptr<data::Dataset> open_cifar(const CifarLayout& layout, const data::DatasetInfo& info, const fs::path& folder,
                                          data::Split split) {
  const auto files = std::make_shared<std::vector<MappedFile>>();
  std::vector<ImagesInMemory::Image> images;
  const auto num_labels = layout.label_counts.size();
  for (const auto& name : split == data::Split::kTrain ? layout.train_files : layout.validation_files) {
    const auto bytes = files->emplace_back(open_file(layout, folder / name)).bytes();
    for (size_t at = num_labels; at < bytes.size(); at += num_labels + kImageBytes) images.push_back({&bytes[at], bytes[at - 1]});
  }
  return std::make_unique<ImagesInMemory>(info, files, std::move(images));
}

}  // namespace

const CifarLayout& cifar10_layout() {
  static const CifarLayout layout{
      .label_counts = {10},
      .class_names = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"},
      .train_files = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
      .validation_files = {"test_batch.bin"},
      .source = {.title = "CIFAR-10",
                 .url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                 .md5 = "c32a1d4ab5d03f1284b67883e8d87530",
                 .folder = "cifar-10-batches-bin"},
  };
  return layout;
}

const CifarLayout& cifar100_layout() {
  static const CifarLayout layout{
      .label_counts = {20, 100},
      .class_names = cifar100_class_names(),
      .train_files = {"train.bin"},
      .validation_files = {"test.bin"},
      .source = {.title = "CIFAR-100",
                 .url = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                 .md5 = "03b5dce01913d631647c71ecec9e9cb8",
                 .folder = "cifar-100-binary"},
  };
  return layout;
}

void CifarOptions::describe(KeyTable& keys) { describe_place(keys, "cifar-10-batches-bin or cifar-100-binary"); }

data::DatasetFactory cifar_factory(const CifarLayout& layout, const CifarOptions& options) {
  const data::DatasetInfo info{
      .shape = {kChannels, kSide, kSide}, .num_classes = layout.label_counts.back(), .class_names = layout.class_names};
  auto names = layout.train_files;
  names.insert(names.end(), layout.validation_files.begin(), layout.validation_files.end());
  return published_factory(
      {.source = layout.source,
       .names = std::move(names),
       .info = info,
       .sizes = {.train = 50'000, .validation = 10'000},
       .open = [&layout, info](const fs::path& folder, data::Split split) { return open_cifar(layout, info, folder, split); }},
      options);
}

void add_cifar(DatasetRegistry& registry) {
  const auto add = [&registry](const char* name, const CifarLayout& layout, const char* doc) {
    registry.add<CifarOptions>(name, doc, [&layout](const CifarOptions& options) { return cifar_factory(layout, options); });
  };
  add("cifar10", cifar10_layout(), "CIFAR-10: 60,000 colour images of 32 x 32 in 10 classes.");
  add("cifar100", cifar100_layout(), "CIFAR-100: 60,000 colour images of 32 x 32 in 100 classes.");
}

}  // namespace trainer::datasets
