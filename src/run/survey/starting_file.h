#pragma once
// The text of the experiment file that `trainer init` writes.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/yaml.h"
#include "data/dataset.h"
#include "run/survey/image_survey.h"

namespace trainer::survey {

// What is known about a data set.
struct DatasetFacts {
  std::string name;   // of the experiment
  Node section = {};  // name and keys of `dataset`
  data::DatasetInfo info = {};
  data::TargetSummary targets = {};            // of the training images
  std::optional<int64_t> num_validation = {};  // not set: it has no images for validation
  ImageSizes sizes = {};                       // of a sample of the training images, which has at least one
  int64_t num_read = 0;                        // number of images in that sample and in a sample of the validation images
  int64_t num_unreadable = 0;                  // of these num_read images
  bool may_use_weights = true;                 // whether training may download published weights for the network
  bool has_gpu = true;
  std::string folder_of_class = {};  // a folder below a class folder, such as "cat/patient_1", if all images lie in such folders
};

// What the paths of an image_folder's images, such as "cat/patient_1/a.jpg", show about its folders.
struct FolderFindings {
  std::string refusal = {};  // why the first folders are no classes
  std::string warning = {};
  std::string folder_of_class = {};  // as in DatasetFacts
};
FolderFindings judge_folders(const std::vector<std::string>& images);

// How the images are prepared: the lines of the two lists of transforms, without normalize.
struct ImagePreparation {
  int64_t size = 0;  // height and width of the network's input
  std::vector<std::string> train = {};
  std::vector<std::string> validation = {};
};
ImagePreparation choose_preparation(const DatasetFacts& facts);

// Whether the network in the file for that data set begins with published weights; if so, the statistics of the pixels are not needed.
bool begins_with_weights(const DatasetFacts& facts, const ImagePreparation& preparation);
// A file for that data set: kStartingFile with its values.
std::string starting_file(const DatasetFacts& facts, const ImagePreparation& preparation, const PixelStatistics& measured);

// The texts of starting_file.yaml and starting_file_of_cifar10.yaml, embedded by CMake.
extern const std::string_view kStartingFile;
// A file for CIFAR-10, which training downloads.
extern const std::string_view kStartingFileOfCifar10;

}  // namespace trainer::survey
