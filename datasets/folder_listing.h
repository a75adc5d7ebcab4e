#pragma once
// Lists the files of a folder, to copy and compare them, and the files of a data set whose classes are folders of images.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/image_files.h"

namespace trainer::datasets {

struct ListedFile {
  std::filesystem::path path;  // below the folder
  uint64_t num_bytes = 0;
  int64_t time = 0;  // of the last change, in nanoseconds since 1970
};

struct ListedLink {
  std::filesystem::path path;
  // The path, relative to the listed folder, under which the link's target folder is listed; empty: the target is neither a file nor a
  // folder.
  std::filesystem::path target;
};

struct FolderListing {
  std::filesystem::path folder;
  std::vector<std::filesystem::path> folders;
  std::vector<ListedFile> files;
  std::vector<ListedLink> links;
  uint64_t num_bytes = 0;
};

// These functions throw std::runtime_error, and Error with ExitCode::kStopped after a stop request.

// Lists everything in `folder`, an absolute path, always in the same order. Links to folders are followed; each folder is listed once.
FolderListing list_folder(const std::filesystem::path& folder);
// Lists only `files` of the folder; skips folders and missing files.
FolderListing list_files(const std::filesystem::path& folder, const std::vector<std::filesystem::path>& files);

// A digest of all names, sizes and times.
std::string digest_of(const FolderListing& listing);

// Finds the files of a data set whose classes are folders of images, in the order of torchvision's ImageFolder. Files and folders whose
// names begin with a dot are ignored everywhere, and so are __MACOSX, Thumbs.db and desktop.ini.
// ROOT/train/CLASS/… contains the training images and ROOT/val/CLASS/… (or valid, or validation) the validation images. If there is no
// folder ROOT/train, ROOT/CLASS/… contains the training images and there are no validation images.

// Whether a folder of this name probably holds a part of a data set, such as "validation", instead of a class.
bool is_split_name(std::string_view name);

// Whether the name has an extension that any ImageMode reads.
bool is_image_name(std::string_view name);

struct ClassFolders {
  std::filesystem::path train;
  std::optional<std::filesystem::path> validation;
  std::vector<std::string> class_names;  // the folders in `train`, sorted by their bytes
};

// Lists the class folders, but no images. Throws std::runtime_error with the problem, the place, and what to do.
ClassFolders find_class_folders(const std::filesystem::path& root);

// The number of threads for a listing, which mostly waits for the file system.
inline constexpr int kListingThreads = 8;

// The first training images, at most kMostTriedImages, as far as the classes can be listed. With kAuto, files that only kRaw can read are
// used if a class has no others.
std::vector<std::filesystem::path> first_images_of(const ClassFolders& folders, data::ImageMode mode);

// The images of one split, class by class: the files with an extension that this mode reads, in each class folder and all folders below it.
// Links to folders are followed, except to a folder that was already listed for the class or that contains the class folders. The list's
// warning counts the other files. Throws DataError for a folder that cannot be listed, without images, or of an unknown class.
ImageList list_images(const ClassFolders& folders, data::Split split, int num_threads, data::ImageMode mode = data::ImageMode::kRgb);

// If `path` is a folder, the image files in it and in all folders below it, in the order of list_images(); otherwise the path itself.
std::vector<std::string> find_image_files(const std::filesystem::path& path, data::ImageMode mode = data::ImageMode::kRgb);

}  // namespace trainer::datasets
