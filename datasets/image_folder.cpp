#include "datasets/image_folder.h"

#include <fmt/format.h>

#include <memory>
#include <stdexcept>
#include <utility>

#include "base/text.h"
#include "datasets/files.h"
#include "datasets/folder_listing.h"
#include "trainer/error.h"

namespace trainer::datasets {
namespace {

// `expected`: the factory's info.
std::unique_ptr<data::Dataset> open_image_folder(const ImageFolderOptions& options, const data::DatasetInfo& expected, data::Split split,
                                                 Logger& logger) {
  ClassFolders folders;
  try {
    folders = find_class_folders(options.root);
  } catch (const std::runtime_error& reason) {
    throw DataError(fmt::format("dataset.root: {}", reason.what()));
  }
  auto info = image_files_info(folders.class_names, expected.decoding);
  if (info.num_classes != expected.num_classes) {
    throw DataError(fmt::format("{} has {}, but had {} when the program started; start the program again when the folder no longer changes",
                                folders.train.string(), counted(info.num_classes, "class folder"), expected.num_classes));
  }
  if (split == data::Split::kValidation && !folders.validation) {
    throw DataError(
        fmt::format("dataset.root: {} has no folder val, valid or validation; to hold out some of the training images, set "
                    "dataset.validation_split",
                    options.root));
  }
  const auto folder = split == data::Split::kTrain ? folders.train : *folders.validation;
  return open_image_files(std::move(info), list_images(folders, split, kListingThreads, info.decoding.mode), folder, logger);
}

}  // namespace

void ImageFolderOptions::describe(KeyTable& keys) {
  describe_root(
      keys, root,
      "The folder that contains train/ and val/ (or valid/, validation/), each with one folder of images per class; or the folder "
      "that contains the class folders, from which some images are then held out for validation.");
  files.describe(keys);
}

data::DatasetFactory image_folder_factory(const ImageFolderOptions& options) {
  data::DatasetFactory factory{.info = image_files_info({}, decoding_of(options.files, {})), .open = {}};
  factory.info.num_classes = data::kUnknownClasses;
  try {
    const auto folders = find_class_folders(options.root);
    const auto images = options.files.need_images() ? first_images_of(folders, options.files.mode) : std::vector<std::filesystem::path>();
    factory.info = image_files_info(folders.class_names, decoding_of(options.files, images));
    factory.has_validation = folders.validation.has_value();
  } catch (const std::runtime_error& reason) {
    factory.missing = reason.what();
  }
  factory.default_transforms = imagenet_transforms(factory.info.decoding.mode);
  factory.open = [options, info = factory.info](data::Split split, Logger& logger) {
    return open_image_folder(options, info, split, logger);
  };
  factory.locate = [root = options.root](Logger&) { return std::filesystem::path(root); };
  factory.in_folder = [files = options.files](const std::filesystem::path& folder) {
    auto copied = options_in<ImageFolderOptions>(folder);
    copied.files = files;
    return image_folder_factory(copied);
  };
  return refuse_missing(std::move(factory));
}

void add_image_folder(DatasetRegistry& registry) {
  registry.add<ImageFolderOptions>("image_folder", "Image files of any size in one folder per class, like torchvision's ImageFolder.",
                                   image_folder_factory);
}

}  // namespace trainer::datasets
