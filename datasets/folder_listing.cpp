#include "datasets/folder_listing.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/signal.h"
#include "base/text.h"
#include "data/threads.h"
#include "datasets/download.h"
#include "datasets/files.h"
#include "trainer/error.h"

namespace trainer::datasets {
namespace {

namespace fs = std::filesystem;

// Identifies a folder independently of its path.
using FolderId = std::pair<dev_t, ino_t>;

// Empty if the path does not exist, for example.
std::optional<struct stat> status_of(const fs::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? std::optional(status) : std::nullopt;
}

// The folder and all of its parents.
std::set<FolderId> with_parents(fs::path path) {
  std::set<FolderId> folders;
  // The parent of the root directory is itself.
  for (auto status = status_of(path); status && folders.emplace(status->st_dev, status->st_ino).second; status = status_of(path)) {
    path /= "..";
  }
  return folders;
}

class FolderLister {
 public:
  explicit FolderLister(const fs::path& folder) { listing_.folder = folder; }

  FolderListing list_all() {
    // Links to a parent of the listed folder would cause endless recursion; in a copy, all of them become links to the copy's parent.
    for (const auto& id : with_parents(listing_.folder)) first_paths_.emplace(id, "..");
    const auto status = status_of(listing_.folder);
    if (!status) fail_with_errno("list", listing_.folder);
    first_paths_[{status->st_dev, status->st_ino}] = ".";
    list_folder("");
    return std::move(listing_);
  }
  // Skips folders and missing files.
  FolderListing list(const std::vector<fs::path>& files) {
    for (const auto& file : files) {
      check_stop();
      const auto status = status_of(listing_.folder / file);
      if (status && !S_ISDIR(status->st_mode)) add(file, status);
    }
    return std::move(listing_);
  }

 private:
  void check_stop() const {
    if (stop_signal() != 0) throw Error("stopped on request while listing " + listing_.folder.string(), ExitCode::kStopped);
  }

  void list_folder(const fs::path& folder) {
    std::vector<fs::path> names;
    for (const auto& entry : fs::directory_iterator(listing_.folder / folder)) names.push_back(entry.path().filename());
    // A folder with several paths is listed under the first one; in sorted order, that is the same one in every listing.
    std::ranges::sort(names);
    for (const auto& name : names) {
      check_stop();
      const auto path = folder / name;
      const auto status = status_of(listing_.folder / path);
      if (!status || !S_ISDIR(status->st_mode)) {
        add(path, status);
        continue;
      }
      const auto [first, is_new] = first_paths_.emplace(FolderId(status->st_dev, status->st_ino), path);
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
  // The path by which each folder was reached first, relative to the listed folder.
  std::map<FolderId, fs::path> first_paths_;
};

using Extensions = std::vector<std::string>;
// The extensions of torchvision's ImageFolder.
const Extensions kImageExtensions = {".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"};
const Extensions kRawExtensions = {".tif", ".tiff", ".npy"};

const Extensions& extensions_of(data::ImageMode mode) { return mode == data::ImageMode::kRaw ? kRawExtensions : kImageExtensions; }

bool has_extension(std::string_view name, const Extensions& extensions) {
  return std::ranges::any_of(extensions, [lower = lower_case(name)](const auto& extension) { return lower.ends_with(extension); });
}

struct FolderEntry {
  std::string name;
  bool is_folder = false;  // true also for a link to a folder
};

// Throws DataError, like all functions here.
[[noreturn]] void fail_to_list(const std::string& path, const std::error_code& reason) {
  if (reason == std::errc::no_such_file_or_directory) throw DataError(fmt::format("there is no folder {}", path));
  if (reason == std::errc::not_a_directory) throw DataError(fmt::format("{} is not a folder", path));
  throw DataError(fmt::format("cannot list {}: {}", path, reason.message()));
}

// The entries that are neither hidden nor added by macOS or Windows, in the order of the file system.
std::vector<FolderEntry> read_folder(const std::string& path) {
  const FileAccess access("listing", path);
  std::vector<FolderEntry> entries;
  std::error_code error;
  for (fs::directory_iterator entry(path, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
    auto name = entry->path().filename().string();
    std::error_code unknown;
    if (name[0] == '.' || name == "__MACOSX" || name == "Thumbs.db" || name == "desktop.ini") continue;
    entries.push_back({std::move(name), entry->is_directory(unknown)});
  }
  if (error) fail_to_list(path, error);
  return entries;
}

// The folders in a folder, sorted by their bytes.
std::vector<std::string> list_folders(const fs::path& path) {
  std::vector<std::string> folders;
  for (auto& entry : read_folder(path.string())) {
    if (entry.is_folder) folders.push_back(std::move(entry.name));
  }
  std::ranges::sort(folders);
  return folders;
}

// Files without an image extension.
struct OtherFiles {
  int64_t count = 0;
  std::string first;  // the smallest path, compared by bytes

  void add(const std::string& path) {
    ++count;
    if (first.empty() || path < first) first = path;
  }
};

struct ClassFiles {
  std::vector<std::string> images;  // paths relative to the class's folder
  OtherFiles others;
};

std::string joined(const std::string& folder, const std::string& name) { return folder.empty() ? name : folder + '/' + name; }

// Lists the files of one class. `listed`: folders to skip.
ClassFiles list_class(const std::string& folder, std::set<FolderId> listed, const Extensions& extensions) {
  ClassFiles files;
  // The names of the images in each folder, by the folder's path below the class folder. The order of the paths is that of torchvision: a-b
  // comes before a/b.
  std::map<std::string, std::vector<std::string>> images;
  std::vector<std::string> pending = {""};
  while (!pending.empty()) {
    const auto relative = std::move(pending.back());
    pending.pop_back();
    const auto path = relative.empty() ? folder : joined(folder, relative);
    const auto status = status_of(path);
    if (!status) fail_to_list(path, {errno, std::generic_category()});
    if (!listed.emplace(status->st_dev, status->st_ino).second) continue;
    const auto num_before = std::ssize(pending);
    for (auto& entry : read_folder(path)) {
      if (stop_signal() != 0) throw Error(fmt::format("stopped on request while listing {}", folder), ExitCode::kStopped);
      if (entry.is_folder) {
        pending.push_back(joined(relative, entry.name));
      } else if (has_extension(entry.name, extensions)) {
        images[relative].push_back(std::move(entry.name));
      } else {
        files.others.add(joined(relative, entry.name));
      }
    }
    // The next folder is the first by name: a folder with several paths is then always listed under the same path.
    std::sort(pending.begin() + num_before, pending.end(), std::greater());
  }
  for (auto& [relative, names] : images) {
    std::ranges::sort(names);
    for (const auto& name : names) files.images.push_back(joined(relative, name));
  }
  return files;
}

[[noreturn]] void throw_no_images(const fs::path& folder, const OtherFiles& others_there, const Extensions& extensions) {
  const auto others = others_there.count == 0 ? "" : fmt::format(" among its {}", counted(others_there.count, "file"));
  throw DataError(fmt::format("{} has no images (files ending in {}){}; add images, or remove the folder", folder.string(),
                              join(extensions, " "), others));
}

// Such as "4 files are not read, ...".
std::string describe_skipped_files(const OtherFiles& others, const Extensions& extensions) {
  const bool is_one = others.count == 1;
  return fmt::format("{} not read, because {} no image extension that {} reads; the first is {}",
                     is_one ? "1 file is" : fmt::format("{} files are", others.count), is_one ? "it has" : "they have",
                     &extensions == &kRawExtensions ? "dataset.mode: raw" : "this program", others.first);
}

std::vector<std::string> validation_classes(const ClassFolders& folders) {
  auto names = list_folders(*folders.validation);
  for (const auto& name : names) {
    if (std::ranges::binary_search(folders.class_names, name)) continue;
    throw DataError(fmt::format("{} has the class folder \"{}\", which {} does not have; remove it, or add training images of that class",
                                folders.validation->string(), name, folders.train.string()));
  }
  return names;
}

// The folders in `path`; throws if there are none.
std::vector<std::string> require_folders(const fs::path& path) {
  std::string problem = path.string() + " has no class folders";
  try {
    auto names = list_folders(path);
    if (!names.empty()) return names;
  } catch (const DataError& error) {
    problem = error.what();
  }
  throw std::runtime_error(
      problem + "; set dataset.root to a folder that contains one folder of images per class, either directly or in train/ and val/");
}

// Throws if a class folder has the name of a split, such as "validation".
void refuse_split_names(const fs::path& root, const std::vector<std::string>& class_names) {
  const auto found = std::ranges::find_if(class_names, is_split_name);
  if (found == class_names.end()) return;
  throw std::runtime_error(
      fmt::format("{} has no folder train, but the folder \"{}\", which is probably not a class; name the folder of training images train "
                  "and that of validation images val, or set dataset.root to the folder that contains the class folders",
                  root.string(), *found));
}

// Names must be UTF-8, because checkpoints and JSON store them as text. Throws like find_class_folders().
ClassFolders with_checked_names(ClassFolders folders) {
  const auto found = std::ranges::find_if_not(folders.class_names, is_utf8);
  if (found == folders.class_names.end()) return folders;
  throw std::runtime_error(
      fmt::format("{} has the class folder \"{}\", whose name is not valid UTF-8; rename it", folders.train.string(), *found));
}

}  // namespace

FolderListing list_folder(const fs::path& folder) { return FolderLister(folder).list_all(); }

FolderListing list_files(const fs::path& folder, const std::vector<fs::path>& files) { return FolderLister(folder).list(files); }

std::string digest_of(const FolderListing& listing) {
  std::string text;
  for (const auto& folder : listing.folders) text += folder.string() + '\0';
  for (const auto& file : listing.files) text += fmt::format("{} {} {}", file.num_bytes, file.time, file.path.string()) + '\0';
  for (const auto& link : listing.links) text += link.path.string() + '\0' + link.target.string() + '\0';
  Digest digest("SHA256");
  digest.update(text);
  return digest.hexadecimal();
}

bool is_split_name(std::string_view name) {
  const auto lower = lower_case(name);
  return lower == "train" || lower == "training" || lower == "val" || lower == "valid" || lower == "validation" || lower == "test";
}

bool is_image_name(std::string_view name) { return has_extension(name, kImageExtensions) || has_extension(name, kRawExtensions); }

ClassFolders find_class_folders(const fs::path& root) {
  auto folders = require_folders(root);
  const auto has = [&folders](const std::string& name) { return std::ranges::binary_search(folders, name); };
  if (!has("train")) {
    refuse_split_names(root, folders);
    return with_checked_names({.train = root, .validation = std::nullopt, .class_names = std::move(folders)});
  }
  std::vector<std::string> validation = {"val", "valid", "validation"};
  std::erase_if(validation, std::not_fn(has));
  if (validation.size() > 1) {
    throw std::runtime_error(
        fmt::format("{} has several folders for validation ({}); keep only one of them", root.string(), join(validation, ", ")));
  }
  return with_checked_names({.train = root / "train",
                             .validation = validation.empty() ? std::nullopt : std::optional(root / validation.front()),
                             .class_names = require_folders(root / "train")});
}

std::vector<fs::path> first_images_of(const ClassFolders& folders, data::ImageMode mode) {
  std::vector<fs::path> images;
  try {
    for (const auto& name : folders.class_names) {
      const auto folder = folders.train / name;
      const auto list = [&](const Extensions& extensions) {
        return list_class(folder.string(), with_parents(folders.train), extensions).images;
      };
      auto names = list(extensions_of(mode));
      if (names.empty() && mode == data::ImageMode::kAuto) names = list(kRawExtensions);
      for (const auto& image : names) {
        if (images.size() == kMostTriedImages) return images;
        images.push_back(folder / image);
      }
    }
  } catch (const Error&) {
    // list_images() reports the error.
  }
  return images;
}

ImageList list_images(const ClassFolders& folders, data::Split split, int num_threads, data::ImageMode mode) {
  const auto& extensions = extensions_of(mode);
  const auto& folder = split == data::Split::kTrain ? folders.train : folders.validation.value();
  const auto names = split == data::Split::kTrain ? folders.class_names : validation_classes(folders);
  struct NoMemory {};
  const auto listed = with_parents(folder);
  std::vector<ClassFiles> classes(names.size());
  const auto always = [](size_t /*num_done*/) { return true; };
  data::for_each_in_threads<NoMemory>(names.size(), num_threads, always, [&](size_t i, NoMemory&) {
    classes[i] = list_class((folder / names[i]).string(), listed, extensions);
  });
  ImageList images(folder);
  OtherFiles others;
  auto next = names.begin();
  for (size_t label = 0; label < folders.class_names.size(); ++label) {
    const auto& name = folders.class_names[label];
    ClassFiles files;
    if (next != names.end() && *next == name) files = std::move(classes[static_cast<size_t>(next++ - names.begin())]);
    if (split == data::Split::kTrain && files.images.empty()) throw_no_images(folder / name, files.others, extensions);
    for (const auto& image : files.images) images.add(joined(name, image), static_cast<int64_t>(label));
    others.count += files.others.count;
    if (others.first.empty() && !files.others.first.empty()) others.first = (folder / name / files.others.first).string();
  }
  if (images.size() == 0) throw_no_images(folder, others, extensions);
  if (others.count > 0) images.set_warning(describe_skipped_files(others, extensions));
  return images;
}

std::vector<std::string> find_image_files(const fs::path& path, data::ImageMode mode) {
  if (std::error_code none; !fs::is_directory(path, none)) return {path.string()};
  const auto files = list_class(path.string(), {}, extensions_of(mode));
  if (files.images.empty()) throw_no_images(path, files.others, extensions_of(mode));
  std::vector<std::string> paths;
  for (const auto& image : files.images) paths.push_back((path / image).string());
  return paths;
}

}  // namespace trainer::datasets
