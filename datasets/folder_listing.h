#pragma once
// What a folder holds: its files, to copy and compare them, and those of a data set whose classes are folders of images.

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
  int64_t time = 0;  // of its last change
};

struct ListedLink {
  std::filesystem::path path;
  // Another path to the same folder, relative to the listed one; empty: it leads neither to a file nor to a folder.
  std::filesystem::path target;
};

struct FolderListing {
  std::filesystem::path folder;
  std::vector<std::filesystem::path> folders;
  std::vector<ListedFile> files;
  std::vector<ListedLink> links;
  uint64_t num_bytes = 0;
};

// All that is in the folder, an absolute path, always in the same order. Links to folders are followed, each folder is listed once. Throws
// std::runtime_error, and Error with ExitCode::kStopped after a stop request.
FolderListing list_folder(const std::filesystem::path& folder);
// These of its files; of them, folders and what is missing are left out. Throws Error with ExitCode::kStopped after a stop request.
FolderListing list_files(const std::filesystem::path& folder, const std::vector<std::filesystem::path>& files);

// Of the names, sizes and times of all of it.
std::string digest_of(const FolderListing& listing);

// Finds the files of a data set whose classes are folders of images, in the order of torchvision's ImageFolder. Files and folders whose
// names begin with a dot are ignored everywhere.
//
// ROOT/train/CLASS/… holds the training images and ROOT/val/CLASS/… (or valid, or validation) those for validation. If there is no folder
// ROOT/train, ROOT/CLASS/… holds the training images and there are none for validation.

// Whether it has the extension of an image that is read in some mode.
bool is_image_name(std::string_view name);

struct ClassFolders {
  std::filesystem::path train;
  std::optional<std::filesystem::path> validation;
  std::vector<std::string> class_names;  // the folders in `train`, sorted by their bytes
};

// Lists the class folders, but no images. Throws std::runtime_error that says what is missing or what name is not UTF-8, where, and what to
// do.
ClassFolders find_class_folders(const std::filesystem::path& root);

// Threads of a listing, which mostly waits for the file system.
inline constexpr int kListingThreads = 8;

// The first of the training images, if the first class has some and can be listed. `mode`: as below; in kAuto files of kRaw alone count
// too.
std::optional<std::filesystem::path> first_image_of(const ClassFolders& folders, data::ImageMode mode);

// The images of one split, class by class: lists the files with an extension of images of that mode in each class folder and in all folders
// below it, with up to `num_threads` threads, on whose number the result does not depend. Links to folders are followed, but not to one
// that was already listed for the class or that holds the class folders. The list's warning counts the other files. Throws DataError that
// names the folder when it cannot be listed, when a training class or the whole split has no images, and when the validation folder has a
// class that the training folder lacks; Error with ExitCode::kStopped after a stop request.
ImageList list_images(const ClassFolders& folders, data::Split split, int num_threads, data::ImageMode mode = data::ImageMode::kRgb);

// Of a folder the files with an image's extension in it and in all folders below it, in the same order; otherwise the path itself. Throws
// DataError that names the folder when it cannot be listed or has no images.
std::vector<std::string> find_image_files(const std::filesystem::path& path, data::ImageMode mode = data::ImageMode::kRgb);

// Names that a reader takes for the same although their bytes differ: in spaces at their ends, or in the form of letters with accents (one
// character, or a letter and its accents; Unicode NFC and NFD).

// The first of `names` that looks like `name` but is not the same; empty: none does. All are UTF-8. A letter is not compared with a
// composed one, so that "cafà" and "café" in different forms count too.
std::string look_alike_of(std::string_view name, const std::vector<std::string>& names);

// For the end of a message that refuses `name` because it is not one of `names`: what may be meant; may be empty.
std::string look_alike_hint(std::string_view name, const std::vector<std::string>& names);

// Of the first two names that look alike; empty: none do.
std::string describe_look_alikes(const std::vector<std::string>& class_names);

}  // namespace trainer::datasets
