#pragma once
// Detects that the run cannot continue, and ends this rank, on one thread that receives all events and looks at the main thread.

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
  // After this time a stop request, and a second request at once, ends a process that is starting up or has been using one file for this
  // long.
  std::chrono::milliseconds stop{8000};
  std::chrono::milliseconds slow_file{20000};  // with one file, until a warning
  std::chrono::milliseconds file{0};           // with one file, until the process ends; 0: never
  // How long a rank may be suspended before all ranks have joined; afterwards the hang_limit of the failure detector.
  std::chrono::milliseconds stopped_rank{kDefaultHangLimit};
};

// What the main thread is doing.
struct MainThreadState {
  distributed::ActivityState activity = {};
  std::chrono::milliseconds with_file{0};                    // how long it has been using activity.file, if any
  std::optional<std::chrono::milliseconds> since_stop = {};  // time since the first stop request
  bool is_stop_repeated = false;
};

// How this process ends.
struct Ending {
  std::string text = {};                 // for the log and for the launcher
  ExitCode exit_code = ExitCode::kPeer;  // exit code of the process: kStopped after a stop request
  bool is_cause = false;                 // whether this rank caused the end of the run; false if another rank or a stop request did
};

// Whether the process must end because the main thread does not react to a stop request or has been using one file for too long. `mine`:
// describes this rank in the text.
std::optional<Ending> judge(const SupervisionLimits& limits, const MainThreadState& thread, const std::string& mine);

// Evaluates the launcher's messages until all ranks have joined. During that time nothing else detects a rank that exits or is suspended.
class StartUpJudge {
 public:
  void receive(const launch::LauncherMessage& message, Clock::time_point now);
  // `limit`: how long a rank may be suspended.
  std::optional<Ending> judge(std::chrono::milliseconds limit, Clock::time_point now) const;

 private:
  std::optional<launch::LauncherMessage> ended_;    // about the first rank that has exited
  std::optional<launch::LauncherMessage> stopped_;  // about the first rank that was suspended and has not been resumed
  Clock::time_point stopped_at_;
};

// Exists from the start of a run.
class Supervisor {
 public:
  Supervisor(const world::RankEnv& rank_env, std::shared_ptr<Logger> logger, const SupervisionLimits& limits = {});
  ~Supervisor();

  const std::shared_ptr<distributed::Activity>& activity() const { return activity_; }
  // Sets the longest time that a rank may be suspended, or spend on one step or file. A run of a single process has no limit for files.
  void set_hang_limit(std::chrono::seconds limit);
  // Call when all ranks have joined; from then on they detect each other's failures.
  void begin(const distributed::Rendezvous& rendezvous);
  // Call on a separate thread when a connection between GPUs has broken; ends the process once the cause is known.
  void lose_connection(const std::string& error);
  // The message for an error that ends this rank. It names the rank that was lost first, if one was; otherwise the other ranks are told
  // that this rank has failed.
  std::string explain(const std::exception& error);
  // Logs the error that ends this rank, unless the other thread has just logged the same text, and writes it to torchrun's error file. An
  // empty text means that another rank reports the error.
  void report(const std::string& text, ExitCode exit_code);
  // Ends the process without running destructors, which would wait for other ranks or for the main thread.
  [[noreturn]] void leave(ExitCode exit_code);
  // Call when the run ends normally.
  void end();

 private:
  using Event = std::variant<launch::LauncherMessage, Failure, Ending>;

  void add(Event event);
  void supervise(const std::stop_token& stop);
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
  // Used only by the supervising thread.
  StartUpJudge start_up_;
  uint64_t file_warned_of_ = 0;  // num_changes at the last warning

  std::mutex report_mutex_;
  std::optional<std::string> reported_;  // the last text; guarded by report_mutex_

  std::mutex mutex_;  // guards the members below
  std::condition_variable_any changed_;
  std::deque<Event> events_;
  SupervisionLimits limits_;
  std::unique_ptr<FailureDetector> detector_;  // set once all ranks have joined, and kept until destruction

  std::jthread thread_;
  std::jthread launcher_messages_;
};

}  // namespace trainer::supervision
