#include "run/run_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/text.h"
#include "trainer/error.h"

namespace trainer::run {
namespace {

constexpr const char* kRemedy = "choose another --run-dir";

// `reason` includes what to do.
[[noreturn]] void fail(const std::filesystem::path& path, const std::string& reason) {
  throw Error(fmt::format("cannot use the run directory {}: {}", path.string(), reason));
}

// Throws Error if `file`, which may be a folder, is a symbolic link. Files that are replaced as a whole need no check, because a rename
// does not follow a link.
void refuse_link(const std::filesystem::path& run_directory, const std::filesystem::path& file) {
  std::error_code no_link;
  const auto target = std::filesystem::read_symlink(file, no_link);
  if (no_link) return;
  fail(run_directory, fmt::format("{} is a symbolic link to {}, which is not followed; remove the link, or {}",
                                  file.lexically_relative(run_directory).string(), target.string(), kRemedy));
}

// Whether a folder between the run directory and the file is a link, which could lead anywhere.
bool is_behind_link(const std::filesystem::path& run_directory, const std::filesystem::path& file) {
  auto folder = run_directory;
  for (const auto& name : file.lexically_relative(run_directory).parent_path()) {
    std::error_code missing;
    folder /= name;
    if (std::filesystem::is_symlink(folder, missing)) return true;
  }
  return false;
}

// Returns a discarded value if the file does not contain JSON that a run could have written.
nlohmann::json read_json(const std::filesystem::path& file) {
  const auto text = read_file(file);
  if (count_json_levels(text) > kMostJsonLevels) return nlohmann::json::value_t::discarded;
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

bool is_number(std::string_view text) { return !text.empty() && text.find_first_not_of("0123456789") == text.npos; }

// The files with fixed names, except the lock, the list and the logs.
constexpr std::array<std::string_view, 11> kNamedFiles = {"config.yaml",      "environment.json", "classes.txt",     "metrics.jsonl",
                                                          "metrics.csv",      "profile.json",     "evaluation.json", "best_evaluation.json",
                                                          "calibration.json", "summary.json",     "split.csv"};

bool is_log(std::string_view name) {
  return name == "train.log" || (name.starts_with("rank_") && name.ends_with(".log") && is_number(name.substr(5, name.size() - 9)));
}

std::vector<std::filesystem::path> existing(std::vector<std::filesystem::path> files) {
  std::error_code unknown;
  std::erase_if(files, [&](const auto& file) { return !std::filesystem::exists(std::filesystem::symlink_status(file, unknown)); });
  return files;
}

bool is_of_finished_run(const std::filesystem::path& summary_file) {
  const auto summary = read_json(summary_file);
  if (!summary.is_object()) return false;
  const auto reason = summary.value("reason", nlohmann::json());
  return reason == "done" || reason == "early";
}

}  // namespace

std::filesystem::path rank_log_file(const std::filesystem::path& run_directory, int rank) {
  auto file = run_directory / fmt::format("rank_{}.log", rank);
  refuse_link(run_directory, file);
  return file;
}

bool is_file_of_run(const std::filesystem::path& file) {
  const auto first = *file.begin();
  if (first == "checkpoints") return file.extension() == ".pt";
  if (first == "tensorboard" || first == "non_finite") return true;
  const auto name = file.string();
  return name == ".lock" || name == ".trainer_run" || is_log(name) || std::ranges::find(kNamedFiles, name) != kNamedFiles.end();
}

RunDirectory::RunDirectory(const std::filesystem::path& path, const FileLock::Options& options) : path_(path) {
  std::error_code unknown;
  for (auto folder = path_; !folder.empty() && !std::filesystem::exists(folder, unknown); folder = folder.parent_path()) {
    new_folders_.push_back(folder);
  }
  const auto file = lock_path();
  do {
    std::error_code error;
    std::filesystem::create_directories(path_, error);
    if (error) fail(path_, explain_refusal(path_, error, kRemedy));
    for (const auto& written : {file, log_file(), metrics_file(), metrics_table_file(), checkpoint_folder(), tensorboard_folder(),
                                non_finite_folder(), profile_file(), list_path()}) {
      refuse_link(path_, written);
    }
    if (const auto refusal = describe_irregular(file); !refusal.empty()) fail(path_, fmt::format(".lock: {}; {}", refusal, kRemedy));
    claim();
    lock_.emplace(file, options);
    // Another process may have removed the folder meanwhile; see discard().
  } while (lock_->error() == std::errc::no_such_file_or_directory);
  if (lock_->error() == std::errc::operation_would_block) {
    throw UsageError(fmt::format("the run directory {} is in use by {}; wait until that process ends, or choose another --run-dir",
                                 path_.string(), lock_->other().empty() ? "another process" : lock_->other()));
  }
  if (!lock_->is_held()) fail(path_, ".lock: " + explain_refusal(file, lock_->error(), kRemedy));
  written_files_ = std::make_unique<WrittenFiles>(list_path());
}

void RunDirectory::begin() const {
  check_lock();
  for (const auto& file : named_files()) written_files_->add(file);
  written_files_->flush();
}

std::vector<std::filesystem::path> RunDirectory::named_files() const {
  std::vector<std::filesystem::path> files;
  for (const auto name : kNamedFiles) files.push_back(path_ / name);
  return files;
}

// Called before the lock is taken, because taking it writes into the folder. Throws UsageError if the folder contains files that are named
// like a run's files but were not written by a run.
void RunDirectory::claim() const {
  std::error_code unknown;
  auto present = existing(named_files());
  auto others = existing({lock_path(), checkpoint_folder(), tensorboard_folder(), non_finite_folder()});
  for (const auto& entry : std::filesystem::directory_iterator(path_, unknown)) {
    if (is_log(entry.path().filename().string())) others.push_back(entry.path());
  }
  // The list is checked after the other files, because another process may be creating this run directory now.
  if (std::filesystem::exists(list_path(), unknown)) {
    const WrittenFiles written(list_path());
    std::erase_if(present, [&](const auto& file) { return written.contains(file); });
    if (present.empty()) return;
  } else {
    if (present.empty() && others.empty()) {
      const auto error = WrittenFiles::create(list_path());
      if (error) fail(path_, list_path().filename().string() + ": " + explain_refusal(list_path(), error, kRemedy));
      return;
    }
    present.insert(present.end(), others.begin(), others.end());
  }
  std::vector<std::string> names;
  for (const auto& file : present) names.push_back(file.filename().string());
  throw UsageError(
      fmt::format("the run directory {} contains {}, which no run of this program has written; nothing there was changed; choose another "
                  "--run-dir, or move these files elsewhere",
                  path_.string(), join(names, ", ")));
}

void RunDirectory::check_lock() const {
  const auto other = lock_->taken_by();
  if (!other) return;
  throw UsageError(
      fmt::format("the run directory {} was removed, or lost its lock file or its lease, and now belongs to {}; this run ends and writes "
                  "nothing there; choose a different --run-dir for each run",
                  path_.string(), other->empty() ? "another run" : *other));
}

void RunDirectory::discard() {
  if (new_folders_.empty()) return;
  std::error_code ignored;
  std::vector<std::filesystem::path> logs;
  bool has_others = false;
  for (const auto& entry : std::filesystem::directory_iterator(path_, ignored)) {
    const auto& file = entry.path();
    if (is_log(file.filename().string())) {
      logs.push_back(file);
    } else {
      has_others |= file != lock_path() && file != list_path();
    }
  }
  for (const auto& log : logs) std::filesystem::remove(log, ignored);
  if (has_others) return;
  std::filesystem::remove(list_path(), ignored);
  std::filesystem::remove(lock_path(), ignored);
  for (const auto& folder : new_folders_) std::filesystem::remove(folder, ignored);
}

RunDirectory::EarlierRun RunDirectory::earlier_run() const {
  const bool has_summary = std::filesystem::exists(summary_file());
  if (has_summary && is_of_finished_run(summary_file())) return EarlierRun::kFinished;
  const bool has_traces = has_summary || std::filesystem::exists(metrics_file()) || std::filesystem::is_directory(checkpoint_folder());
  return has_traces ? EarlierRun::kUnfinished : EarlierRun::kNone;
}

void RunDirectory::clear() const {
  auto files = written_files_->files();
  for (const char* link : {"last.pt", "best.pt"}) {
    if (std::filesystem::is_symlink(checkpoint_folder() / link)) files.push_back(checkpoint_folder() / link);
  }
  std::erase_if(files, [&](const auto& file) { return is_behind_link(path_, file); });
  for (const auto& file : files) {
    if (!std::filesystem::is_directory(std::filesystem::symlink_status(file))) std::filesystem::remove(file);
  }
  // Removes the folders that are empty now.
  std::error_code holds_others;
  for (const auto& file : files) {
    for (auto folder = file.lexically_relative(path_).parent_path(); !folder.empty(); folder = folder.parent_path()) {
      std::filesystem::remove(path_ / folder, holds_others);
    }
  }
}

std::map<std::string, uint64_t> RunDirectory::event_files() const {
  std::map<std::string, uint64_t> sizes;
  // A file can be gone at any moment: another run that takes a lost lock removes them.
  const auto add = [&](const std::filesystem::path& file) {
    std::error_code error;
    const auto size = std::filesystem::file_size(file, error);
    if (error && !std::filesystem::exists(file)) return;
    if (error) throw std::filesystem::filesystem_error("cannot read the size of", file, error);
    sizes[file.lexically_relative(path_).string()] = size;
  };
  for (const auto& file : {metrics_file(), metrics_table_file()}) add(file);
  for (const auto& file : written_files_->files()) {
    if (file.parent_path() != tensorboard_folder()) continue;
    refuse_link(path_, file);
    add(file);
  }
  return sizes;
}

void RunDirectory::truncate_event_files(const std::map<std::string, uint64_t>& event_files) const {
  for (const auto& [name, size] : this->event_files()) {
    const auto then = event_files.find(name);
    if (then == event_files.end()) {
      std::filesystem::remove(path_ / name);
    } else if (then->second < size) {
      std::filesystem::resize_file(path_ / name, then->second);
    }
  }
}

void RunDirectory::remove_later_evaluations(int64_t step) const {
  for (const auto& file : existing({evaluation_file(), best_evaluation_file(), calibration_file()})) {
    const auto evaluation = read_json(file);
    const auto then = evaluation.is_object() ? evaluation.value("step", nlohmann::json()) : nlohmann::json();
    if (!then.is_number_integer() || then.get<int64_t>() > step) std::filesystem::remove(file);
  }
}

}  // namespace trainer::run
