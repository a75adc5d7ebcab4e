#pragma once
// What the data sets that read files have in common.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace trainer::datasets {

// Also true when this cannot be determined; opening the file then reports the reason.
bool is_there(const std::filesystem::path& path);

// The default options of a data set, with the key `root`, whose files are in that folder.
template <class Options>
Options options_in(const std::filesystem::path& folder) {
  Options options;
  options.root = folder.string();
  return options;
}

// The content of a file in memory, which copies of this object share.
struct FileContent {
  std::filesystem::path path;
  std::shared_ptr<const void> owner;
  std::span<const uint8_t> bytes;
};

// Maps the file, or decompresses it if its name ends in .gz. Throws DataError that names the file and the reason.
FileContent load_file(const std::filesystem::path& path);

}  // namespace trainer::datasets
