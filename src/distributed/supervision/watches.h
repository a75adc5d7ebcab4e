#pragma once
// Notices that the connection between GPUs broke while the main thread waits for a GPU: the GPU then waits forever.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/log.h"
#include "distributed/activity.h"
#include "trainer/error.h"

namespace trainer::supervision {

class ConnectionWatch {
 public:
  // Until its destruction, calls `error` several times a second on another thread. `on_lost` is called on that thread, at most once, with
  // the first text that is not empty.
  ConnectionWatch(std::function<std::string()> error, std::function<void(const std::string&)> on_lost);
  ~ConnectionWatch();

 private:
  void watch();

  const std::function<std::string()> error_;
  const std::function<void(const std::string&)> on_lost_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;  // guarded by the mutex
  std::thread thread_;
};

// Ends a process whose main thread is blocked in the kernel, by a file system that does not answer.

struct WatchLimits {
  // From a stop request to the end of a process that is starting up or using a file, and does not react; the second request ends it at
  // once.
  std::chrono::milliseconds stop{8000};
  // After this time with one file, a warning names it.
  std::chrono::milliseconds slow_file{20000};
  // After this time with one file, the process ends; 0: never.
  std::chrono::milliseconds hang{0};
};

// What the main thread does at a moment.
struct MainThreadState {
  distributed::ActivityState activity = {};
  std::chrono::milliseconds with_file{0};                    // how long with activity.file, if there is one
  std::optional<std::chrono::milliseconds> since_stop = {};  // since the first stop request
  bool is_stop_repeated = false;
};

struct WatchVerdict {
  std::string reason = {};
  ExitCode exit_code = ExitCode::kPeer;  // kStopped after a stop request
};

// Whether the process has to end, and why.
std::optional<WatchVerdict> judge(const WatchLimits& limits, const MainThreadState& thread);

class MainThreadWatch {
 public:
  // Judges the main thread until its destruction, on another thread. `end` is called at most once, and has to end the process.
  MainThreadWatch(std::shared_ptr<const distributed::Activity> activity, WatchLimits limits, std::shared_ptr<Logger> logger,
                  std::function<void(const WatchVerdict&)> end);
  ~MainThreadWatch();

  // `limit` replaces WatchLimits::hang.
  void set_hang_limit(std::chrono::milliseconds limit);

 private:
  void watch();
  // Returns whether the process has to end. With the mutex locked.
  bool check();

  const std::shared_ptr<const distributed::Activity> activity_;
  const std::shared_ptr<Logger> logger_;
  const std::function<void(const WatchVerdict&)> end_;
  uint64_t file_warned_of_ = 0;  // the number of changes at the last warning; used by the thread only
  std::mutex mutex_;             // guards the members below
  std::condition_variable changed_;
  WatchLimits limits_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace trainer::supervision
