#include "datasets/folder_listing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/signal.h"
#include "datasets/files.h"
#include "trainer/error.h"

namespace trainer::datasets {
namespace {

namespace fs = std::filesystem;

class FolderLister {
 public:
  explicit FolderLister(const fs::path& folder) { listing_.folder = folder; }

  FolderListing list_all() {
    // Links to any folder that holds this one would never end; they become links to the folder that holds the copy.
    for (auto above = listing_.folder; above.has_relative_path();) {
      above = above.parent_path();
      first_paths_.emplace(id_of(above), "..");
    }
    first_paths_.emplace(id_of(listing_.folder), ".");
    list_folder("");
    return std::move(listing_);
  }
  // Folders, and what is missing, are left out.
  FolderListing list(const std::vector<fs::path>& files) {
    for (const auto& file : files) {
      check_stop();
      const auto status = status_of(file);
      if (status && !S_ISDIR(status->st_mode)) add(file, status);
    }
    return std::move(listing_);
  }

 private:
  // Empty: the path leads nowhere.
  std::optional<struct stat> status_of(const fs::path& path) const {
    struct stat status {};
    return ::stat((listing_.folder / path).c_str(), &status) == 0 ? std::optional(status) : std::nullopt;
  }
  static std::pair<dev_t, ino_t> id_of(const fs::path& folder) {
    struct stat status {};
    if (::stat(folder.c_str(), &status) != 0) fail_with_errno("list", folder);
    return {status.st_dev, status.st_ino};
  }

  void check_stop() const {
    if (stop_signal() != 0) throw Error("stopped on request while listing " + listing_.folder.string(), ExitCode::kStopped);
  }

  void list_folder(const fs::path& folder) {
    std::vector<fs::path> names;
    for (const auto& entry : fs::directory_iterator(listing_.folder / folder)) names.push_back(entry.path().filename());
    // So that each listing follows the same one of several paths to a folder.
    std::ranges::sort(names);
    for (const auto& name : names) {
      check_stop();
      const auto path = folder / name;
      const auto status = status_of(path);
      if (!status || !S_ISDIR(status->st_mode)) {
        add(path, status);
        continue;
      }
      const auto [first, is_new] = first_paths_.emplace(std::pair(status->st_dev, status->st_ino), path);
      if (is_new) {
        listing_.folders.push_back(path);
        list_folder(path);
      } else {
        listing_.links.push_back({path, first->second});
      }
    }
  }

  void add(const fs::path& path, const std::optional<struct stat>& status) {
    if (!status || !S_ISREG(status->st_mode)) {
      listing_.links.push_back({path, ""});
      return;
    }
    const auto num_bytes = static_cast<uint64_t>(status->st_size);
    listing_.files.push_back({path, num_bytes, int64_t{status->st_mtim.tv_sec} * 1'000'000'000 + status->st_mtim.tv_nsec});
    listing_.num_bytes += num_bytes;
  }

  FolderListing listing_;
  // By which a folder was reached first, relative to the listed folder.
  std::map<std::pair<dev_t, ino_t>, fs::path> first_paths_;
};

}  // namespace

FolderListing list_folder(const fs::path& folder) { return FolderLister(folder).list_all(); }

FolderListing list_files(const fs::path& folder, const std::vector<fs::path>& files) { return FolderLister(folder).list(files); }

std::string digest_of(const FolderListing& listing) {
  std::string text;
  for (const auto& folder : listing.folders) text += folder.string() + '\0';
  for (const auto& file : listing.files) text += fmt::format("{} {} {}", file.num_bytes, file.time, file.path.string()) + '\0';
  for (const auto& link : listing.links) text += link.path.string() + '\0' + link.target.string() + '\0';
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1)
    throw std::runtime_error("cannot compute SHA-256");
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + size, ""));
}

}  // namespace trainer::datasets
