#include "distributed/supervision/watches.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/file.h"
#include "base/signal.h"
#include "base/text.h"

namespace trainer::supervision {
namespace {

constexpr std::chrono::milliseconds kAskInterval{200};

}  // namespace

ConnectionWatch::ConnectionWatch(std::function<std::string()> error, std::function<void(const std::string&)> on_lost)
    : error_(std::move(error)), on_lost_(std::move(on_lost)), thread_([this] { watch(); }) {}

ConnectionWatch::~ConnectionWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    over_.notify_all();
  }
  thread_.join();
}

void ConnectionWatch::watch() {
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    lock.unlock();
    if (const auto error = error_(); !error.empty()) {
      on_lost_(error);
      return;
    }
    lock.lock();
    over_.wait_for(lock, kAskInterval, [this] { return is_over_; });
  }
}

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kInterval{100};

}  // namespace

std::optional<WatchVerdict> judge(const WatchLimits& limits, const MainThreadState& thread) {
  const auto place = [&] { return describe_with_file(thread.activity); };
  // In training, a step or a checkpoint may take longer; the training loop ends the run after it.
  const bool is_start_up = thread.activity.phase == distributed::Phase::kStartUp || thread.activity.phase == distributed::Phase::kConnect;
  const bool is_late = thread.since_stop && (*thread.since_stop >= limits.stop || thread.is_stop_repeated);
  if (is_late && (is_start_up || thread.with_file >= limits.stop)) {
    return WatchVerdict{.reason = fmt::format("stopped on request in {}", place()), .exit_code = ExitCode::kStopped};
  }
  if (limits.hang > milliseconds(0) && thread.with_file > limits.hang) {
    return WatchVerdict{.reason = fmt::format("no progress for {} in {}", format_duration(thread.with_file), place()),
                        .exit_code = ExitCode::kPeer};
  }
  return std::nullopt;
}

MainThreadWatch::MainThreadWatch(std::shared_ptr<const distributed::Activity> activity, WatchLimits limits, std::shared_ptr<Logger> logger,
                                 std::function<void(const WatchVerdict&)> end)
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
  const auto file = current_file_access();
  const auto with_file =
      file.text.empty() ? milliseconds(0) : std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - file.since);
  const auto verdict = judge(limits_, {.activity = activity_->read(),
                                       .with_file = with_file,
                                       .since_stop = time_since_stop_signal(),
                                       .is_stop_repeated = is_stop_repeated()});
  if (verdict) {
    end_(*verdict);
    return true;
  }
  if (with_file > limits_.slow_file && file_warned_of_ != file.num_changes) {
    file_warned_of_ = file.num_changes;
    logger_->warn("{} has taken {} so far; does its file system answer?", file.text, format_duration(with_file));
  }
  return false;
}

}  // namespace trainer::supervision
