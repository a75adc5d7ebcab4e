#pragma once
// How a rank learns that the run cannot go on, and ends.

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "distributed/health.h"
#include "distributed/rendezvous.h"
#include "launch/notices.h"
#include "world/place.h"

namespace trainer::session {

// From the first line of a run on. What its threads find out ends the process at once, with exit code 4: the main thread may be waiting
// for a rank that never comes.
class Watch {
 public:
  Watch(const world::Place& place, std::shared_ptr<Logger> logger);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  const std::shared_ptr<distributed::Activity>& activity() const { return activity_; }
  // From now on: how long a rank may be stopped, or take for one step.
  void set_hang_limit(std::chrono::seconds limit);
  // All ranks have met: from now on they look after each other.
  void begin(const distributed::Meeting& meeting);
  // What is to be said of what keeps this rank from going on: of a lost rank, which was lost first; of anything else the error itself,
  // after the others have heard that this rank has failed.
  std::string explain(const std::exception& error);
  // Says what ends this rank, to torchrun too. An empty text is said by another rank.
  void say(const std::string& text, ExitCode exit_code);
  // The run ends in order.
  void end();

 private:
  void hear(const launch::Notice& notice);
  // Until all have met, nobody else looks after a rank that is stopped.
  void wait_for_stopped_rank();
  [[noreturn]] void leave(const std::string& text, bool is_own);

  const int rank_;
  const bool launcher_serves_store_;
  const std::filesystem::path error_file_;
  const std::shared_ptr<Logger> logger_;
  const std::shared_ptr<distributed::Activity> activity_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::chrono::seconds hang_limit_;
  std::unique_ptr<distributed::Health> health_;
  std::optional<launch::Notice> stopped_;  // of the first rank that was stopped, and has not been continued
  std::chrono::steady_clock::time_point stopped_at_;
  bool is_over_ = false;

  std::unique_ptr<launch::NoticeReader> notices_;
  std::thread guard_;
};

}  // namespace trainer::session
