#include "commands/file_of_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace trainer::commands {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 12> kFiles = {
    ".lock",         ".trainer_run", "config.yaml",     "environment.json",     "classes.txt",  "train.log",
    "metrics.jsonl", "metrics.csv",  "evaluation.json", "best_evaluation.json", "summary.json", "profile.json"};

// Training writes both at its start.
bool is_run(const fs::path& folder) {
  std::error_code none;
  return fs::exists(folder / "config.yaml", none) && fs::exists(folder / "metrics.jsonl", none);
}

// `file`: relative to the folder of the run.
bool is_kept(const fs::path& file) {
  const auto first = *file.begin();
  if (first == "checkpoints") return file.extension() == ".pt";
  if (first == "tensorboard" || first == "non_finite") return true;
  const auto name = file.string();
  return std::ranges::find(kFiles, name) != kFiles.end() || (name.starts_with("rank_") && name.ends_with(".log"));
}

}  // namespace

void refuse_file_of_run(const fs::path& output, std::string_view option) {
  std::error_code no_file;
  const auto file = fs::canonical(output, no_file);
  if (no_file) return;
  for (auto folder = file.parent_path(); folder.has_relative_path(); folder = folder.parent_path()) {
    if (!is_run(folder) || !is_kept(file.lexically_relative(folder))) continue;
    throw UsageError(fmt::format("{} {}: this is a file of the run in {}, which would be overwritten; give another name", option,
                                 output.string(), folder.string()));
  }
}

}  // namespace trainer::commands
