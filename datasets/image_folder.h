#pragma once
// Images in one folder per class, such as ImageNet's; folder_listing.h describes the layouts. The caller of read() decodes the files.

#include <string>

#include "datasets/dataset_registry.h"
#include "datasets/image_files.h"

namespace trainer::datasets {

struct ImageFolderOptions {
  std::string root = "data";
  ImageFileOptions files = {};
  void describe(KeyTable& keys);
};

// Lists the class folders. If there are none, the factory's `missing` is the reason, and its open() throws it as a DataError.
data::DatasetFactory image_folder_factory(const ImageFolderOptions& options);

}  // namespace trainer::datasets
