#pragma once
// One rank of a run as a process of the operating system: its signal handlers, its log, and the monitor of failures.

#include <functional>
#include <memory>

#include "base/log.h"
#include "distributed/supervision/failure_monitor.h"
#include "distributed/supervision/watches.h"
#include "launch/world/rank_env.h"
#include "trainer/error.h"

namespace trainer::session {

class RankProcess {
 public:
  // Finds this process's rank, installs the handlers of crashes and of stop requests, and starts to watch for failures of other ranks and
  // for files that block this one.
  // One per process. Throws UsageError when flags or launcher variables are incomplete or contradict each other.
  explicit RankProcess(const world::RankFlags& flags = {});

  // Runs `work`. Throws its exceptions again as an Error that names the cause, which may be another rank.
  ExitCode run(const std::function<ExitCode()>& work);

  const world::RankEnv& rank_env() const { return rank_env_; }
  const std::shared_ptr<Logger>& logger() const { return logger_; }
  supervision::FailureMonitor& monitor() { return monitor_; }
  // From now on, the longest time that a rank may be stopped, or spend on one step or file.
  void set_hang_limit(std::chrono::seconds limit);

 private:
  [[noreturn]] void leave(const std::string& reason, ExitCode exit_code);

  const world::RankEnv rank_env_;
  const std::shared_ptr<Logger> logger_;
  supervision::FailureMonitor monitor_;
  supervision::MainThreadWatch watch_;
};

}  // namespace trainer::session
