#include "base/file_access.h"

#include <unistd.h>

#include <mutex>
#include <utility>

namespace trainer {
namespace {

// Global, because a process has one main thread, and functions that read files do not know who watches it.
std::mutex mutex;
CurrentFileAccess current;

// Returns the text before.
std::string replace_text(std::string text) {
  const std::lock_guard lock(mutex);
  ++current.num_changes;
  current.since = std::chrono::steady_clock::now();
  return std::exchange(current.text, std::move(text));
}

}  // namespace

FileAccess::FileAccess(const char* action, const std::filesystem::path& path) : is_main_thread_(gettid() == getpid()) {
  if (is_main_thread_) before_ = replace_text(action + (" " + path.string()));
}

FileAccess::~FileAccess() {
  if (is_main_thread_) replace_text(std::move(before_));
}

CurrentFileAccess current_file_access() {
  const std::lock_guard lock(mutex);
  return current;
}

}  // namespace trainer
