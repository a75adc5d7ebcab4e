#pragma once
// Data sets written by `trainer data pack`: an LMDB environment for each split (lmdb_file.h). Samples are read from the memory map, which
// the processes of a host share.

#include <filesystem>
#include <memory>
#include <string>

#include "datasets/dataset_registry.h"

namespace trainer::datasets {

struct LmdbOptions {
  std::string root = "data";
  void describe(KeyTable& keys);
};

// Reads what is stored about the training split: shape, classes and default transforms. If that fails, the factory's `missing` is the
// reason, and its open() throws it as a DataError.
data::DatasetFactory lmdb_factory(const LmdbOptions& options);

// Opens one split of a packed data set without comparing it with the other splits; the data set may be incomplete. Throws DataError like
// the factory's open().
std::unique_ptr<data::Dataset> open_packed(const std::filesystem::path& root, data::Split split);

}  // namespace trainer::datasets
