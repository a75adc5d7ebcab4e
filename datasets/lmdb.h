#pragma once
// Data sets that `trainer data pack` has written: an LMDB environment for each split (lmdb_file.h). Samples are read from the memory map,
// which the processes of a host share.

#include <filesystem>
#include <memory>
#include <string>

#include "datasets/registry.h"

namespace trainer::datasets {

struct LmdbOptions {
  std::string root = "data";
  void describe(KeyTable& keys);
};

// Reads what is known of all samples. If that fails, the factory tells the reason, and its open() throws that as a DataError.
data::DatasetFactory lmdb_factory(const LmdbOptions& options);

// One split of a packed data set that may still be unfinished, without comparing it with others. Throws DataError as open().
std::unique_ptr<data::Dataset> open_packed(const std::filesystem::path& root, data::Split split);

}  // namespace trainer::datasets
