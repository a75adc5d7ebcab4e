#include "checkpoint/store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/pytorch_file.h"

namespace trainer::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLast = "last.pt";
constexpr const char* kBest = "best.pt";

std::optional<int64_t> step_of(const fs::path& file) {
  constexpr std::string_view kPrefix = "step_";
  const auto name = file.stem().string();
  int64_t step = 0;
  if (file.extension() != ".pt" || !name.starts_with(kPrefix)) return std::nullopt;
  const auto* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  return error == std::errc() && rest == end ? std::optional(step) : std::nullopt;
}

}  // namespace

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

Store::Store(fs::path folder, int64_t keep_last) : folder_(std::move(folder)), keep_last_(keep_last) {
  try {
    fs::create_directories(folder_);
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension().string().starts_with(".tmp")) fs::remove(entry.path());
    }
    AtomicFile(folder_ / "probe").write("x");
  } catch (const std::exception& error) {
    throw CheckpointError(
        fmt::format("no checkpoint can be saved in {}: {}; make it writable, or choose another --run-dir", folder_.string(), error.what()));
  }
}

fs::path Store::file_of(int64_t step) const { return folder_ / fmt::format("step_{:08}.pt", step); }

uint64_t Store::write(const state::Tree& tree, int64_t step, bool is_best) const {
  const auto path = file_of(step);
  const auto num_bytes = save(path, tree);
  link(kLast, path);
  if (is_best) link(kBest, path);
  flush_folder(folder_);
  remove_old();
  return num_bytes;
}

void Store::link(const char* name, const fs::path& target) const {
  const auto temporary = folder_ / fmt::format("{}.tmp{}", name, ::getpid());
  fs::remove(temporary);
  fs::create_symlink(target.filename(), temporary);
  fs::rename(temporary, folder_ / name);
}

void Store::remove_old() const {
  const auto files = list_checkpoints(folder_);
  std::error_code no_best;
  const auto best = fs::read_symlink(folder_ / kBest, no_best);
  for (size_t i = static_cast<size_t>(keep_last_); i < files.size(); ++i) {
    if (files[i].filename() != best) fs::remove(files[i]);
  }
}

}  // namespace trainer::checkpoint
