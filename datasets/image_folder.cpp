#include "datasets/image_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/file_access.h"
#include "base/plural.h"
#include "base/text.h"
#include "datasets/image_folder_listing.h"

namespace trainer::datasets {
namespace {

// Of the listing, which mostly waits for the file system.
constexpr int kListingThreads = 8;
constexpr int64_t kMaxFileBytes = int64_t{1} << 30;

[[noreturn]] void throw_unreadable(const std::string& path) {
  const int reason = errno;
  throw std::runtime_error("cannot be read: " + (reason == 0 ? describe_irregular(path) : std::generic_category().message(reason)));
}

// The bytes of a file, as a part of `buffer`, which grows if needed. Throws std::runtime_error with only the reason.
std::span<const uint8_t> read_bytes(const std::string& path, std::vector<uint8_t>& buffer) {
  const FileAccess access("reading", path);
  const auto file = open_regular_file(path, O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0) throw_unreadable(path);
  if (status.st_size > kMaxFileBytes) {
    throw std::runtime_error("cannot be read: it has more than " + format_bytes(kMaxFileBytes));
  }
  const auto num_bytes = static_cast<size_t>(status.st_size);
  if (buffer.size() < num_bytes) buffer.resize(num_bytes);
  size_t num_read = 0;
  while (num_read < num_bytes) {
    const auto length = ::read(file.number(), buffer.data() + num_read, num_bytes - num_read);
    if (length < 0 && errno != EINTR) throw_unreadable(path);
    if (length == 0) break;
    if (length > 0) num_read += static_cast<size_t>(length);
  }
  if (num_read == 0) throw std::runtime_error("cannot be read: the file is empty");
  return std::span<const uint8_t>(buffer).first(num_read);
}

class ImageFolder : public input::Dataset {
 public:
  ImageFolder(input::DatasetInfo info, ImageList images) : info_(std::move(info)), images_(std::move(images)) {}

  const input::DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return images_.size(); }
  std::string name(int64_t index) const override { return images_.path(index); }

  input::Sample read(int64_t index, input::Scratch& scratch) const override {
    return {
        .image = {}, .encoded = read_bytes(images_.path(index), scratch.bytes), .values = {}, .label = images_.label(index), .target = {}};
  }

 private:
  input::DatasetInfo info_;
  ImageList images_;
};

input::DatasetInfo info_of(const ClassFolders& folders) {
  return {.shape = {3, input::kAnySize, input::kAnySize},
          .is_image = true,
          .num_classes = static_cast<int64_t>(folders.class_names.size()),
          .num_targets = 1,
          .class_names = folders.class_names};
}

// `num_classes`: of the factory's info.
std::unique_ptr<input::Dataset> open_image_folder(const ImageFolderOptions& options, int64_t num_classes, Split split, Logger& logger) {
  ClassFolders folders;
  try {
    folders = find_class_folders(options.root);
  } catch (const std::runtime_error& reason) {
    throw DataError(fmt::format("dataset.root: {}", reason.what()));
  }
  auto info = info_of(folders);
  if (info.num_classes != num_classes) {
    throw DataError(fmt::format("{} has {} now, but had {} when the program started; start it again when they no longer change",
                                folders.train.string(), counted(info.num_classes, "class folder"), num_classes));
  }
  if (split == Split::kValidation && !folders.validation) {
    throw DataError(
        fmt::format("dataset.root: {} has no folder val, valid or validation; to hold out some of the training images, set "
                    "dataset.validation_split",
                    options.root));
  }
  auto images = list_images(folders, split, kListingThreads);
  const int64_t num_used = images.num_classes_with_images();
  logger.info("{}: {} in {}{}", images.folder().string(), counted(images.size(), "image"),
              num_used == num_classes ? "" : fmt::format("{} of ", num_used), counted(num_classes, "class", "classes"));
  return std::make_unique<ImageFolder>(std::move(info), std::move(images));
}

std::string normalised(const char* list) {
  return fmt::format("[{}, {{normalize: {{mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}}}]", list);
}

}  // namespace

void ImageFolderOptions::describe(config::KeyTable& keys) {
  keys.add("root", root,
           {.doc = "The folder that holds train/ and val/ (or valid/, validation/), each with one folder of images for each class; or the "
                   "folder that holds the class folders, some of whose images are then held out for validation.",
            .is_path = true});
  keys.refuse("root", [this] { return root.empty() ? "it is empty; name a folder, or . for the current one" : ""; });
}

DatasetFactory image_folder_factory(const ImageFolderOptions& options) {
  DatasetFactory factory{.info = {.shape = {3, input::kAnySize, input::kAnySize}, .is_image = true, .num_classes = input::kUnknownClasses},
                         .open = {},
                         .default_transforms = {.train = normalised("{random_resized_crop: {size: 224}}, random_horizontal_flip"),
                                                .validation = normalised("{resize: {size: 256}}, {center_crop: {size: 224}}")}};
  try {
    const auto folders = find_class_folders(options.root);
    factory.info = info_of(folders);
    factory.has_validation = folders.validation.has_value();
  } catch (const std::runtime_error& reason) {
    factory.missing = reason.what();
  }
  factory.open = [options, num_classes = factory.info.num_classes, missing = factory.missing](Split split, Logger& logger) {
    if (!missing.empty()) throw DataError("dataset.root: " + missing);
    return open_image_folder(options, num_classes, split, logger);
  };
  return factory;
}

void add_image_folder(DatasetRegistry& registry) {
  registry.add<ImageFolderOptions>("image_folder", "Image files of any size, in one folder for each class, as torchvision's ImageFolder.",
                                   image_folder_factory);
}

}  // namespace trainer::datasets
