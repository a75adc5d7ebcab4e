#include "run/run_directory.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/access.h"
#include "base/error.h"
#include "base/file.h"

namespace trainer::run {
namespace {

// The content of the lock file while it is held; quoted in the error message of a second process.
std::string describe_this_process() {
  char host[HOST_NAME_MAX + 1] = {};
  ::gethostname(host, sizeof(host) - 1);
  return fmt::format("process {} on {} since {:%Y-%m-%d %H:%M:%S %z}", ::getpid(), host, fmt::localtime(std::time(nullptr)));
}

bool replace_content(int descriptor, const std::string& content) {
  const auto size = static_cast<ssize_t>(content.size());
  return ::ftruncate(descriptor, 0) == 0 && ::pwrite(descriptor, content.data(), content.size(), 0) == size;
}

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& reason) {
  throw Error(fmt::format("cannot use the run directory {}: {}; choose another with --run-dir", path.string(), reason));
}

// Files that are replaced as a whole need no check: a rename does not follow a link.
void refuse_link(const std::filesystem::path& run_directory, const std::filesystem::path& file) {
  std::error_code no_link;
  const auto target = std::filesystem::read_symlink(file, no_link);
  if (no_link) return;
  fail(run_directory, fmt::format("{} is a symbolic link to {}, which is not followed: remove it",
                                  file.lexically_relative(run_directory).string(), target.string()));
}

bool is_of_finished_run(const std::filesystem::path& summary_file) {
  const auto summary = nlohmann::json::parse(read_file(summary_file), nullptr, /*allow_exceptions=*/false);
  if (!summary.is_object()) return false;
  const auto reason = summary.value("reason", nlohmann::json());
  return reason == "done" || reason == "early";
}

// Whether `descriptor` is open on the file that has this path now.
bool is_file_at(int descriptor, const std::filesystem::path& path) {
  struct stat open {};
  struct stat named {};
  return ::fstat(descriptor, &open) == 0 && ::stat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

}  // namespace

std::filesystem::path rank_log_file(const std::filesystem::path& run_directory, int rank) {
  auto file = run_directory / fmt::format("rank_{}.log", rank);
  refuse_link(run_directory, file);
  return file;
}

RunDirectory::RunDirectory(const std::filesystem::path& path) : path_(path) {
  std::error_code unknown;
  for (auto folder = path_; !folder.empty() && !std::filesystem::exists(folder, unknown); folder = folder.parent_path()) {
    new_folders_.push_back(folder);
  }
  const auto file = lock_path();
  int reason = 0;
  do {
    std::error_code error;
    std::filesystem::create_directories(path_, error);
    if (error) fail(path_, explain_refusal(path_, error));
    for (const auto& written : {file, log_file(), metrics_file(), metrics_table_file(), checkpoint_folder(), tensorboard_folder(),
                                non_finite_folder(), profile_file()}) {
      refuse_link(path_, written);
    }
    if (const auto refusal = describe_irregular(file); !refusal.empty()) fail(path_, ".lock: " + refusal);
    lock_ = lock_file(file, 0666);
    reason = errno;
    // A process that was refused may have removed the file meanwhile; see discard().
  } while (lock_.number() >= 0 && !is_file_at(lock_.number(), file));
  // Empty if the process that holds the lock has not written its description yet, or has released the lock.
  if (lock_.number() >= 0 || reason == EWOULDBLOCK) earlier_holder_ = read_file(file);
  if (lock_.number() < 0 && reason == EWOULDBLOCK) {
    throw UsageError(fmt::format("the run directory {} is in use by {}; wait until that ends, or choose another with --run-dir",
                                 path_.string(), earlier_holder_.empty() ? "another process" : earlier_holder_));
  }
  if (lock_.number() < 0 || !replace_content(lock_.number(), describe_this_process())) {
    fail(path_, ".lock: " + explain_refusal(file, {lock_.number() < 0 ? reason : errno, std::generic_category()}));
  }
}

// Keeps the file, so that another user of the folder finds the same one.
RunDirectory::~RunDirectory() { replace_content(lock_.number(), ""); }

void RunDirectory::check_lock() const {
  std::error_code ignored;
  if (!std::filesystem::exists(lock_path(), ignored) || is_file_at(lock_.number(), lock_path())) return;
  const auto holder = read_file(lock_path());
  throw UsageError(
      fmt::format("the run directory {} was removed or lost its lock file, and now belongs to {}; this run ends and writes nothing there; "
                  "choose another --run-dir for each run",
                  path_.string(), holder.empty() ? "another run" : holder));
}

void RunDirectory::discard() {
  if (new_folders_.empty()) return;
  std::error_code ignored;
  std::vector<std::filesystem::path> logs;
  for (const auto& entry : std::filesystem::directory_iterator(path_, ignored)) {
    if (entry.path().extension() == ".log") logs.push_back(entry.path());
  }
  for (const auto& log : logs) std::filesystem::remove(log, ignored);
  if (std::distance(std::filesystem::directory_iterator(path_, ignored), {}) > 1) return;
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
  for (const auto& file :
       {config_file(), environment_file(), class_names_file(), metrics_file(), metrics_table_file(), tensorboard_folder(), profile_file(),
        checkpoint_folder(), non_finite_folder(), evaluation_file(), summary_file()}) {
    std::filesystem::remove_all(file);
  }
}

std::map<std::string, uint64_t> RunDirectory::event_files() const {
  std::map<std::string, uint64_t> sizes;
  const auto add = [&](const std::filesystem::path& file) {
    sizes[file.lexically_relative(path_).string()] = std::filesystem::file_size(file);
  };
  for (const auto& file : {metrics_file(), metrics_table_file()}) {
    if (std::filesystem::exists(file)) add(file);
  }
  std::error_code no_folder;
  for (const auto& entry : std::filesystem::directory_iterator(tensorboard_folder(), no_folder)) {
    refuse_link(path_, entry.path());
    add(entry.path());
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

void RunDirectory::remove_later_evaluation(int64_t step) const {
  if (!std::filesystem::exists(evaluation_file())) return;
  const auto evaluation = nlohmann::json::parse(read_file(evaluation_file()), nullptr, /*allow_exceptions=*/false);
  const auto then = evaluation.is_object() ? evaluation.value("step", nlohmann::json()) : nlohmann::json();
  if (!then.is_number_integer() || then.get<int64_t>() > step) std::filesystem::remove(evaluation_file());
}

}  // namespace trainer::run
