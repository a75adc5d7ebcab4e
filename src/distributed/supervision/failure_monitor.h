#pragma once
// How a rank learns that the run cannot continue, and ends.

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/log.h"
#include "distributed/rendezvous.h"
#include "distributed/supervision/failure_detector.h"
#include "launch/launcher_messages.h"
#include "launch/world/rank_env.h"
#include "trainer/error.h"

namespace trainer::supervision {

// Exists from the start of a run. When one of its threads detects a failure, it ends the process immediately, with exit code 4: the main
// thread may be waiting for a rank that never joins.
class FailureMonitor {
 public:
  FailureMonitor(const world::RankEnv& rank_env, std::shared_ptr<Logger> logger);
  ~FailureMonitor();

  const std::shared_ptr<distributed::Activity>& activity() const { return activity_; }
  // From now on, the longest time that a rank may be stopped or spend on one step.
  void set_hang_limit(std::chrono::seconds limit);
  // All ranks have met: from now on they detect each other's failures.
  void begin(const distributed::Meeting& meeting);
  // The message for an error that ends this rank. If another rank was lost: which one was lost first. Otherwise: the error's own message,
  // after informing the others that this rank has failed.
  std::string explain(const std::exception& error);
  // Logs the error that ends this rank, and writes it to torchrun's error file. Empty text: another rank reports it.
  void report(const std::string& text, ExitCode exit_code);
  // Ends the process once its log is written: connections that close tell the other ranks, and destructors would wait for these or for the
  // main thread.
  [[noreturn]] void leave(ExitCode exit_code);
  // NCCL has reported, as `error`, that a connection broke: ends the process.
  [[noreturn]] void leave_after_lost_connection(const std::string& error);
  // The run ends normally.
  void end();

 private:
  void receive(const launch::LauncherMessage& message);
  // Until all ranks have met, nothing else detects a stopped rank.
  void wait_for_stopped_rank();
  [[noreturn]] void leave_because(const std::string& failure, bool is_own);

  const int rank_;
  const bool launcher_serves_store_;
  const std::filesystem::path error_file_;
  const std::shared_ptr<Logger> logger_;
  const std::shared_ptr<distributed::Activity> activity_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::chrono::seconds hang_limit_;
  std::unique_ptr<FailureDetector> detector_;
  std::optional<launch::LauncherMessage> stopped_;  // about the first rank that was stopped and has not been continued
  std::chrono::steady_clock::time_point stopped_at_;
  bool is_over_ = false;

  std::unique_ptr<launch::LauncherMessageReader> launcher_messages_;
  std::thread guard_;
};

}  // namespace trainer::supervision
