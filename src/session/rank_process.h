#pragma once
// One rank of a run as a process of the operating system: its signal handlers, its log, and what it reports when it ends.

#include <filesystem>
#include <functional>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "supervision/failure_monitor.h"
#include "world/rank_env.h"

namespace trainer::session {

class RankProcess {
 public:
  // Finds this process's rank, installs the handlers of crashes and of requests to stop, and begins to watch for failures of other
  // ranks. One per process. Throws UsageError where flags or launcher variables are incomplete or contradict each other.
  explicit RankProcess(const world::RankFlags& flags = {});

  // Runs `work`. An exception of it comes out as an Error that names the cause, which may be another rank.
  ExitCode run(const std::function<ExitCode()>& work);

  // The run has a log of its own: from now on an error's message is logged instead of being thrown to main. `checkpoint_folder`: on the
  // rank that saves, else empty.
  void begin_run(const std::filesystem::path& checkpoint_folder);
  bool has_begun_run() const { return has_begun_run_; }
  // On the rank that saves, after a failure: from which checkpoint the same command resumes.
  void log_where_it_resumes();

  const world::RankEnv& rank_env() const { return rank_env_; }
  const std::shared_ptr<Logger>& logger() const { return logger_; }
  supervision::FailureMonitor& monitor() { return monitor_; }

 private:
  const world::RankEnv rank_env_;
  const std::shared_ptr<Logger> logger_;
  supervision::FailureMonitor monitor_;
  bool has_begun_run_ = false;
  std::filesystem::path checkpoint_folder_;
};

ExitCode exit_code_of(const std::exception& error);

}  // namespace trainer::session
