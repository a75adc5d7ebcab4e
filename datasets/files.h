#pragma once
// What the data sets that read files have in common.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
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

// Whether Dataset::list() tells the size of that sample: of a thousand of them, spread evenly, because on a file system of a network it
// takes a message for each.
inline bool lists_size(int64_t index, int64_t num_samples) {
  constexpr int64_t kMostSizes = 1000;
  return index % ((num_samples + kMostSizes - 1) / kMostSizes) == 0;
}

// Asks the processor to load memory that is read soon. Into the second-level cache: the first accepts few requests at a time, so that the
// others would wait.
inline void prefetch_memory(const uint8_t* bytes, size_t count) {
  constexpr size_t kCacheLine = 64;
  for (size_t i = 0; i < count; i += kCacheLine) __builtin_prefetch(bytes + i, /*rw=*/0, /*locality=*/2);
}

// The content of a file in memory, which copies of this object share.
struct FileContent {
  std::filesystem::path path;
  std::shared_ptr<const void> owner;
  std::span<const uint8_t> bytes;
};

// Maps the file, or decompresses it if its name ends in .gz. Then `check` is called with what there is so far, again and again, and throws
// DataError if that is already too much or wrong: a few kilobytes may hold gigabytes. Throws DataError that names the file and the reason.
FileContent load_file(const std::filesystem::path& path, const std::function<void(std::span<const uint8_t>)>& check);

}  // namespace trainer::datasets
