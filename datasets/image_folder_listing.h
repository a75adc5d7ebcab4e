#pragma once
// Finds the files of a data set whose classes are folders of images, in the order of torchvision's ImageFolder. Files and folders whose
// names begin with a dot are ignored everywhere.
//
// ROOT/train/CLASS/… holds the training images and ROOT/val/CLASS/… (or valid, or validation) those for validation. If there is no folder
// ROOT/train, ROOT/CLASS/… holds the training images and there are none for validation.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/image_files.h"

namespace trainer::datasets {

// Whether it has an image's extension.
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

// The images of one split, class by class: lists the files with an image's extension in each class folder and in all folders below it, with
// up to `num_threads` threads, on whose number the result does not depend. Links to folders are followed, but not to one that was already
// listed for the class or that holds the class folders. The list's warning counts the other files. Throws DataError that names the folder
// when it cannot be listed, when a training class or the whole split has no images, and when the validation folder has a class that the
// training folder lacks; Error with ExitCode::kStopped after a stop request.
ImageList list_images(const ClassFolders& folders, data::Split split, int num_threads);

// The files with an image's extension in a folder and in all folders below it, in the same order, without `folder` itself in their paths.
// Throws DataError that names the folder when it cannot be listed or has no images.
std::vector<std::string> list_image_files(const std::filesystem::path& folder);

}  // namespace trainer::datasets
