#include "supervision/main_thread_watch.h"

#include <fmt/format.h>

#include <utility>

#include "base/file_access.h"
#include "base/signal.h"
#include "base/text.h"

namespace trainer::supervision {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kInterval{100};

}  // namespace

MainThreadWatch::MainThreadWatch(std::shared_ptr<const distributed::Activity> activity, WatchLimits limits, std::shared_ptr<Logger> logger,
                                 std::function<void(const std::string&, ExitCode)> end)
    : activity_(std::move(activity)), logger_(std::move(logger)), end_(std::move(end)), limits_(limits), thread_([this] { watch(); }) {}

MainThreadWatch::~MainThreadWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void MainThreadWatch::set_hang_limit(milliseconds limit) {
  const std::lock_guard lock(mutex_);
  limits_.hang = limit;
}

void MainThreadWatch::watch() {
  std::unique_lock lock(mutex_);
  while (!is_over_ && !check()) changed_.wait_for(lock, kInterval);
}

bool MainThreadWatch::check() {
  const auto state = activity_->read();
  const auto file = current_file_access();
  const bool uses_file = !file.text.empty();
  const auto with_file =
      uses_file ? std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - file.since) : milliseconds(0);
  // In training, a step or a checkpoint may take longer; the training loop ends the run after it.
  const bool is_start_up = state.phase == distributed::Phase::kStartUp || state.phase == distributed::Phase::kConnect;
  const auto since_stop = time_since_stop_signal();
  const bool is_late = since_stop && (*since_stop >= limits_.stop || is_stop_repeated());
  if (is_late && (is_start_up || with_file >= limits_.stop)) {
    end_(fmt::format("stopped on request in {}", describe_with_file(state)), ExitCode::kStopped);
    return true;
  }
  if (limits_.hang > milliseconds(0) && with_file > limits_.hang) {
    end_(fmt::format("no progress for {} in {}", format_duration(with_file), describe_with_file(state)), ExitCode::kPeer);
    return true;
  }
  if (with_file > limits_.slow_file && file_warned_of_ != file.num_changes) {
    file_warned_of_ = file.num_changes;
    logger_->warn("{} has taken {} so far; does its file system answer?", file.text, format_duration(with_file));
  }
  return false;
}

}  // namespace trainer::supervision
