#pragma once
// How a rank learns that the run cannot continue, and ends. What happens arrives as events at one thread, which also looks at the main
// thread several times a second; it alone decides.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>

#include "base/log.h"
#include "distributed/activity.h"
#include "distributed/rendezvous.h"
#include "distributed/supervision/failure_detector.h"
#include "launch/launcher_messages.h"
#include "launch/world/rank_env.h"
#include "trainer/error.h"

namespace trainer::supervision {

struct SupervisionLimits {
  // From a stop request to the end of a process that is starting up or using a file, and does not react; the second request ends it at
  // once.
  std::chrono::milliseconds stop{8000};
  // After this time with one file, a warning names it.
  std::chrono::milliseconds slow_file{20000};
  // After this time with one file, the process ends; 0: never.
  std::chrono::milliseconds file{0};
  // How long a rank may be stopped before all ranks have met.
  std::chrono::milliseconds stopped_rank{kDefaultHangLimit};
};

// What the main thread does at a moment.
struct MainThreadState {
  distributed::ActivityState activity = {};
  std::chrono::milliseconds with_file{0};                    // how long with activity.file, if there is one
  std::optional<std::chrono::milliseconds> since_stop = {};  // since the first stop request
  bool is_stop_repeated = false;
};

// How this process ends.
struct Ending {
  std::string text = {};                 // for the log and for the launcher
  ExitCode exit_code = ExitCode::kPeer;  // of the process: kStopped after a stop request
  bool is_cause = false;                 // of the run's end; false: another rank is, or somebody asked for it
};

// Whether the main thread has to be ended, because it is blocked in the kernel by a file system that does not answer, or does not react.
// `mine`: this rank, for the text.
std::optional<Ending> judge(const SupervisionLimits& limits, const MainThreadState& thread, const std::string& mine);

// What the launcher tells before the ranks have met; then nothing else detects a rank that ends or is stopped.
class StartUpJudge {
 public:
  void receive(const launch::LauncherMessage& message, Clock::time_point now);
  // `limit`: how long a rank may be stopped.
  std::optional<Ending> judge(std::chrono::milliseconds limit, Clock::time_point now) const;

 private:
  std::optional<launch::LauncherMessage> ended_;    // about the first rank that has ended
  std::optional<launch::LauncherMessage> stopped_;  // about the first rank that was stopped and has not been continued
  Clock::time_point stopped_at_;
};

// Calls `error` several times a second on another thread until its destruction, and `on_lost` there, once, with the first text that is not
// empty. A GPU whose connection broke waits forever, and so does the thread that asks it.
class ConnectionWatch {
 public:
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

// Exists from the start of a run. When it ends the process, it does so at once: the main thread may be waiting for a rank that never joins.
class Supervisor {
 public:
  Supervisor(const world::RankEnv& rank_env, std::shared_ptr<Logger> logger, const SupervisionLimits& limits = {});
  ~Supervisor();

  const std::shared_ptr<distributed::Activity>& activity() const { return activity_; }
  // From now on, the longest time that a rank may be stopped, or spend on one step or file. A single process waits for its files, as most
  // programs do.
  void set_hang_limit(std::chrono::seconds limit);
  // All ranks have met: from now on they detect each other's failures.
  void begin(const distributed::Rendezvous& rendezvous);
  // A connection between GPUs broke, as `error` says: the process ends, once the cause is known. To be called by a thread of its own.
  void lose_connection(const std::string& error);
  // The message for an error that ends this rank. If another rank was lost: which one was lost first. Otherwise: the error's own message,
  // after informing the others that this rank has failed.
  std::string explain(const std::exception& error);
  // Logs the error that ends this rank, and writes it to torchrun's error file. Empty text: another rank reports it.
  void report(const std::string& text, ExitCode exit_code);
  // Ends the process once its log is written: connections that close tell the other ranks, and destructors would wait for these or for the
  // main thread.
  [[noreturn]] void leave(ExitCode exit_code);
  // The run ends normally.
  void end();

 private:
  using Event = std::variant<launch::LauncherMessage, Failure, Ending>;

  void add(Event event);
  void supervise();
  // Each may end the process.
  void handle(const launch::LauncherMessage& message);
  void handle(const Failure& failure);
  void handle(const Ending& ending) { end_with(ending); }
  void look_at_main_thread();
  [[noreturn]] void end_with(const Ending& ending);

  const int rank_;
  const int world_size_;
  const bool launcher_serves_store_;
  const std::filesystem::path error_file_;
  const std::string mine_;  // "rank 2 (process 31 on host-a)"
  const std::shared_ptr<Logger> logger_;
  const std::shared_ptr<distributed::Activity> activity_;
  // Used by the thread only.
  StartUpJudge start_up_;
  uint64_t file_warned_of_ = 0;  // the number of changes at the last warning

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<Event> events_;
  SupervisionLimits limits_;
  std::unique_ptr<FailureDetector> detector_;  // once the ranks have met; then it stays
  bool is_over_ = false;

  std::thread thread_;
  std::unique_ptr<launch::LauncherMessageReader> launcher_messages_;
};

}  // namespace trainer::supervision
