#pragma once
// The data sets that a configuration can name. To add one, add a file in this folder and its name in CMakeLists.txt (docs/extending.md).

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/keys/key_table.h"
#include "base/log.h"
#include "input/dataset.h"

namespace trainer::datasets {

enum class Split { kTrain, kValidation };

// Numbers of samples.
struct SplitSizes {
  int64_t train = 0;
  int64_t validation = 0;
};

// Lists of transforms in YAML, as in an experiment file.
struct DefaultTransforms {
  std::string train = "[]";
  std::string validation = "[]";
};

// A data set that is configured but not yet opened.
struct DatasetFactory {
  input::DatasetInfo info;
  // Downloads the files if configured, opens and checks them. Throws DataError that names the file and the remedy.
  std::function<std::unique_ptr<input::Dataset>(Split split, Logger& logger)> open;
  // For experiments that do not choose their own.
  DefaultTransforms default_transforms = {};
  // Whether it has validation samples; otherwise some of the training set are held out.
  bool has_validation = true;
  // Why info.num_classes is kUnknownClasses, and what to do; else empty.
  std::string missing = {};
  // The key of the data set that `missing` is about.
  std::string missing_key = "root";
  // The folder that holds all its files, which are downloaded if configured. Throws as open(). Empty: it has no folder of its own.
  std::function<std::filesystem::path(Logger& logger)> locate = {};
  // With locate(): the files of that folder that it uses, relative to it. Throws as open(). Empty: all of them.
  std::function<std::vector<std::filesystem::path>()> list_files = {};
  // With locate(): the same data set with the files of another folder.
  std::function<DatasetFactory(const std::filesystem::path& folder)> in_folder = {};
  // Known without files: those of generated samples, and as published those of a data set whose files are not there. Not set: open()
  // tells, without downloading anything.
  std::optional<SplitSizes> sizes = {};
  // Whether all samples stay in this process's memory, in mapped or loaded files: product(info.shape) bytes each.
  bool is_in_memory = false;
};

// make() reads no samples. To know the classes, it may list folders and read small files that index the samples; it does not throw when
// that fails.
using DatasetRegistry = Registry<DatasetFactory>;

const DatasetRegistry& dataset_registry();

}  // namespace trainer::datasets
