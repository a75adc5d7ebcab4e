#pragma once
// Images in one folder for each class, such as ImageNet's; folder_listing.h describes the layouts. The files are decoded by whoever
// reads the samples.

#include <string>

#include "datasets/image_files.h"
#include "datasets/registry.h"

namespace trainer::datasets {

struct ImageFolderOptions {
  std::string root = "data";
  ImageFileOptions files = {};
  void describe(KeyTable& keys);
};

// Lists the class folders. Without any, the factory tells what is missing, and its open() throws that as a DataError.
data::DatasetFactory image_folder_factory(const ImageFolderOptions& options);

}  // namespace trainer::datasets
