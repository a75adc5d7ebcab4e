#pragma once
// What a folder holds, so that it can be copied and compared: files, and links that keep circles apart from folders.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

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

}  // namespace trainer::datasets
