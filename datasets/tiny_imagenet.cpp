#include "datasets/tiny_imagenet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/signal.h"
#include "base/text.h"
#include "datasets/files.h"
#include "datasets/folder_listing.h"
#include "datasets/image_files.h"
#include "trainer/error.h"

// The functions before open_tiny_imagenet() throw std::runtime_error with the reason; that function adds what to do.

namespace trainer::datasets {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kTinySide = 64;
constexpr int64_t kPublishedClasses = 200;
constexpr data::SplitSizes kTinySizes{.train = 100'000, .validation = 10'000};
constexpr const char* kIdsFile = "wnids.txt";

struct TinyClasses {
  std::vector<std::string> ids;  // sorted by their bytes
  std::vector<std::string> names;
};

// Calls `use` with the number, from 1, and the text of each line that is not empty.
void for_each_line(const fs::path& file, const std::function<void(int64_t number, std::string_view line)>& use) {
  const auto text = read_file(file);
  std::string_view rest = text;
  for (int64_t number = 1; !rest.empty(); ++number) {
    auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!is_utf8(line)) throw std::runtime_error(fmt::format("{}: line {} is not valid UTF-8", file.string(), number));
    if (!line.empty()) use(number, line);
  }
}

std::vector<std::string> read_ids(const fs::path& file) {
  std::vector<std::string> ids;
  for_each_line(file, [&](int64_t number, std::string_view line) {
    if (line.find_first_of("/. \t") != std::string_view::npos || line.find('\0') != std::string_view::npos) {
      throw std::runtime_error(fmt::format("{}: line {} is \"{}\" instead of the id of a class", file.string(), number, line));
    }
    ids.emplace_back(line);
  });
  if (ids.empty()) throw std::runtime_error(file.string() + " lists no classes");
  std::ranges::sort(ids);
  const auto twice = std::ranges::adjacent_find(ids);
  if (twice != ids.end()) throw std::runtime_error(fmt::format("{} lists the class {} twice", file.string(), *twice));
  return ids;
}

// The first name of each id; the id itself if the file is missing or does not contain it.
std::vector<std::string> read_names(const fs::path& file, const std::vector<std::string>& ids) {
  auto names = ids;
  if (!is_there(file)) return names;
  for_each_line(file, [&](int64_t, std::string_view line) {
    const auto tab = std::min(line.find('\t'), line.size());
    const auto id = std::ranges::lower_bound(ids, line.substr(0, tab));
    if (id == ids.end() || *id != line.substr(0, tab)) return;
    line.remove_prefix(std::min(tab + 1, line.size()));
    const auto name = line.substr(0, line.find(','));
    if (!name.empty()) names[static_cast<size_t>(id - ids.begin())] = name;
  });
  return names;
}

TinyClasses read_tiny_classes(const fs::path& folder) {
  TinyClasses classes;
  classes.ids = read_ids(folder / kIdsFile);
  classes.names = read_names(folder / "words.txt", classes.ids);
  return classes;
}

ImageList list_training(const fs::path& folder, const TinyClasses& classes) {
  const auto train = folder / "train";
  for (const auto& id : classes.ids) {
    if (!is_there(train / id)) throw std::runtime_error(fmt::format("there is no folder {}", (train / id).string()));
  }
  return list_images({.train = train, .validation = std::nullopt, .class_names = classes.ids}, data::Split::kTrain, kListingThreads);
}

ImageList list_validation(const fs::path& folder, const TinyClasses& classes) {
  const auto file = folder / "val/val_annotations.txt";
  ImageList images(folder / "val/images");
  for_each_line(file, [&](int64_t number, std::string_view line) {
    const auto name = line.substr(0, line.find('\t'));
    auto id = line.substr(std::min(name.size() + 1, line.size()));
    id = id.substr(0, id.find('\t'));
    const auto label = std::ranges::lower_bound(classes.ids, id);
    if (label == classes.ids.end() || *label != id) {
      throw std::runtime_error(
          fmt::format("{}: line {} has the class \"{}\", which {} does not have", file.string(), number, id, kIdsFile));
    }
    images.add(name, label - classes.ids.begin());
  });
  if (images.size() == 0) throw std::runtime_error(file.string() + " lists no images");
  return images;
}

const std::vector<std::string> kNames = {kIdsFile};

// Returns the reason with what to do: "REASON; REMEDY".
std::string explain(const PublishedSource& source, const std::string& reason) {
  return fmt::format("{}; unpack {} again, or set dataset.root to a new folder and dataset.download=true", reason, source.url);
}

// `num_classes`: of the factory's info.
std::unique_ptr<data::Dataset> open_tiny_imagenet(const PublishedSource& source, const TinyImagenetOptions& options, int64_t num_classes,
                                                  data::Split split, Logger& logger) {
  const auto place = options.locate(source, kNames, logger);
  try {
    const auto classes = read_tiny_classes(place);
    const auto count = static_cast<int64_t>(classes.ids.size());
    if (count != num_classes) {
      throw std::runtime_error(
          fmt::format("{} lists {}, but {} were expected", (place / kIdsFile).string(), counted(count, "class", "classes"), num_classes));
    }
    auto images = split == data::Split::kTrain ? list_training(place, classes) : list_validation(place, classes);
    return open_image_files(image_files_info(classes.names, {}, kTinySide), std::move(images),
                            place / (split == data::Split::kTrain ? "train" : "val"), logger);
  } catch (const DataError&) {
    throw;
  } catch (const std::runtime_error& reason) {
    if (stop_signal() != 0) throw;
    throw DataError("dataset.root: " + explain(source, reason.what()));
  }
}

}  // namespace

const PublishedSource& tiny_imagenet_source() {
  static const PublishedSource source{.title = "Tiny ImageNet",
                                      .url = "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                                      .md5 = "90528d7ca1a48142e341f4ef8d21d0de",
                                      .folder = "tiny-imagenet-200"};
  return source;
}

void TinyImagenetOptions::describe(KeyTable& keys) { describe_place(keys, "tiny-imagenet-200"); }

data::DatasetFactory tiny_imagenet_factory(const PublishedSource& source, const TinyImagenetOptions& options) {
  data::DatasetFactory factory{
      .info = image_files_info({}, {}, kTinySide),
      .open = {},
      .default_transforms = {.train = with_imagenet_normalisation("{random_crop: {size: 64, padding: 8}}, random_horizontal_flip"),
                             .validation = with_imagenet_normalisation("")}};
  factory.info.num_classes = options.download ? kPublishedClasses : data::kUnknownClasses;
  const auto folder = options.find(source, kNames);
  if (!folder && !options.download) factory.missing = options.explain_absence(source);
  if (folder) {
    try {
      factory.info = image_files_info(read_tiny_classes(*folder).names, {}, kTinySide);
    } catch (const std::runtime_error& reason) {
      factory.info.num_classes = data::kUnknownClasses;
      factory.missing = explain(source, reason.what());
    }
  }
  factory.open = [source, options, num_classes = factory.info.num_classes, missing = factory.missing](data::Split split, Logger& logger) {
    if (!missing.empty()) throw DataError("dataset.root: " + missing);
    return open_tiny_imagenet(source, options, num_classes, split, logger);
  };
  factory.locate = [source, options](Logger& logger) { return options.locate(source, kNames, logger); };
  if (!folder) factory.sizes = kTinySizes;
  factory.in_folder = [source](const fs::path& copy) { return tiny_imagenet_factory(source, options_in<TinyImagenetOptions>(copy)); };
  return factory;
}

void add_tiny_imagenet(DatasetRegistry& registry) {
  registry.add<TinyImagenetOptions>(
      "tiny_imagenet", "Tiny ImageNet: 110,000 colour images of 64 x 64 in 200 classes.",
      [](const TinyImagenetOptions& options) { return tiny_imagenet_factory(tiny_imagenet_source(), options); });
}

}  // namespace trainer::datasets
