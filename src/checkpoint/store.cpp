#include "checkpoint/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <stdexcept>

#include "base/file.h"
#include "base/text.h"
#include "base/zip.h"
#include "checkpoint/pytorch_file.h"
#include "checkpoint/refusal.h"
#include "trainer/checkpoint.h"
#include "trainer/error.h"

namespace trainer::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLast = "last.pt";
constexpr const char* kBest = "best.pt";
constexpr const char* kProbe = "probe";

std::optional<int64_t> step_of(const fs::path& file) {
  constexpr std::string_view kPrefix = "step_";
  const auto name = file.stem().string();
  if (file.extension() != ".pt" || !name.starts_with(kPrefix)) return std::nullopt;
  return parse_number<int64_t>(std::string_view(name).substr(kPrefix.size()));
}

// Whether `file` has the name of an unfinished checkpoint or link: "step_00001950.pt.tmp31".
bool is_temporary(const fs::path& file) {
  constexpr std::string_view kExtension = ".tmp";
  const auto extension = file.extension().string();
  const bool is_form = extension.starts_with(kExtension) && extension.find_first_not_of("0123456789", kExtension.size()) == extension.npos;
  const auto target = file.stem();
  return is_form && (target == kLast || target == kBest || target == kProbe || step_of(target));
}

// Checks only the archive's directory and the headers of its entries; their contents are not read.
bool is_complete(const fs::path& file) {
  try {
    const auto map = map_file(file);
    const ZipDirectory archive(map.bytes());
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

// Makes the new file `copy` a hard link to `content` or, if that is not possible, a copy.
void link_or_copy(const fs::path& content, const fs::path& copy) {
  std::error_code impossible;
  fs::create_hard_link(content, copy, impossible);
  if (!impossible) return;
  fs::copy_file(content, copy);
  const auto file = open_regular_file(copy, O_RDWR);
  if (file.number() < 0 || ::fsync(file.number()) != 0) {
    throw fs::filesystem_error("cannot flush the file", copy, {errno, std::generic_category()});
  }
}

}  // namespace

fs::path find_in_run(const fs::path& folder, const std::function<fs::path(const fs::path& place)>& find) {
  for (const auto& place : {folder_of_run(folder), folder}) {
    if (auto found = find(place); !found.empty()) return found;
  }
  return {};
}

fs::path checkpoint_of(const fs::path& path) {
  std::error_code unreadable;
  if (!fs::is_directory(path, unreadable)) return path;
  const auto file = find_in_run(path, [&](const fs::path& place) {
    for (const char* name : {kBest, kLast}) {
      if (fs::is_regular_file(place / name, unreadable)) return place / name;
    }
    return fs::path();
  });
  if (file.empty()) throw CheckpointError(fmt::format("{}: {}", path.string(), kHoldsNoCheckpoint));
  return file;
}

std::vector<fs::path> list_checkpoints(const fs::path& folder) {
  std::vector<std::pair<int64_t, fs::path>> numbered;
  std::error_code no_folder;
  for (const auto& entry : fs::directory_iterator(folder, no_folder)) {
    if (const auto step = step_of(entry.path())) numbered.emplace_back(*step, entry.path());
  }
  std::ranges::sort(numbered, std::greater<>());
  std::vector<fs::path> files;
  for (auto& [step, file] : numbered) files.push_back(std::move(file));
  return files;
}

std::string checkpoint_name(int64_t step) { return fmt::format("step_{:08}.pt", step); }

Store::Store(fs::path folder, int64_t keep_last, WrittenFiles* files) : folder_(std::move(folder)), keep_last_(keep_last), files_(files) {
  try {
    fs::create_directories(folder_);
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (is_temporary(entry.path())) fs::remove(entry.path());
    }
    // What is needed only after hours is tried now.
    const auto probe = temporary_of(kProbe);
    for (int i = 0; i < 2; ++i) write_file_atomically(probe, "x");
    largest_file_ = largest_size_of(open_regular_file(probe, O_RDONLY));
    fs::remove(probe);
    fs::create_symlink(kProbe, probe, link_error_);
    fs::remove(probe);
  } catch (const std::exception& error) {
    throw CheckpointError(fmt::format("checkpoints cannot be saved in {}: {}; make it writable, or choose another --run-dir",
                                      folder_.string(), error.what()));
  }
}

fs::path Store::file_of(int64_t step) const { return folder_ / checkpoint_name(step); }

Written Store::write(const state::Tree& tree, int64_t step, bool is_best) {
  const auto path = file_of(step);
  if (files_ != nullptr) files_->add(path);
  const auto num_bytes = save(path, tree);
  complete_.insert(path);
  return {num_bytes, link_written(step, is_best)};
}

std::vector<fs::path> Store::link_written(int64_t step, bool is_best) {
  try {
    link(kLast, file_of(step));
    if (is_best) link(kBest, file_of(step));
    flush_folder(folder_);
    return remove_old(step);
  } catch (const fs::filesystem_error& error) {
    throw CheckpointError(
        fmt::format("cannot create links to {} or remove old checkpoints: {}; check the permissions and the file system of its folder",
                    file_of(step).string(), error.code().message()));
  }
}

bool Store::set_first_best(const fs::path& file) const {
  const auto best = folder_ / kBest;
  if (fs::exists(fs::symlink_status(best))) return false;
  const auto temporary = temporary_of(kBest);
  const auto content = fs::canonical(file);
  if (files_ != nullptr) files_->add(best);
  link_or_copy(content, temporary);
  fs::rename(temporary, best);
  flush_folder(folder_);
  return true;
}

// Returns the path of a temporary file for `name`, after removing that file if a killed process has left it.
fs::path Store::temporary_of(const char* name) const {
  auto temporary = folder_ / fmt::format("{}.tmp{}", name, ::getpid());
  fs::remove(temporary);
  return temporary;
}

void Store::link(const char* name, const fs::path& target) const {
  const auto temporary = temporary_of(name);
  if (!link_error_) {
    fs::create_symlink(target.filename(), temporary);
  } else {
    if (files_ != nullptr) files_->add(folder_ / name);
    link_or_copy(target, temporary);
  }
  fs::rename(temporary, folder_ / name);
}

std::vector<fs::path> Store::remove_old(int64_t step) {
  std::error_code no_best;
  const auto best = fs::read_symlink(folder_ / kBest, no_best);
  std::vector<fs::path> removed;
  int64_t num_complete = 0;
  for (const auto& file : list_checkpoints(folder_)) {
    if (*step_of(file) > step || (files_ != nullptr && !files_->contains(file))) continue;
    if (num_complete < keep_last_) {
      if (!complete_.contains(file) && is_complete(file)) complete_.insert(file);
      if (complete_.contains(file)) ++num_complete;
    } else if (file.filename() != best && fs::remove(file)) {
      complete_.erase(file);
      removed.push_back(file);
    }
  }
  return removed;
}

}  // namespace trainer::checkpoint
