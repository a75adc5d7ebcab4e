#include "run/session/rank_process.h"

#include <c10/util/Logging.h>
#include <fmt/format.h>

#include <csignal>
#include <thread>

#include "base/crash.h"
#include "base/exit_status.h"
#include "base/signal.h"
#include "config/sections.h"
#include "distributed/rendezvous.h"
#include "launch/world/host_resources.h"

namespace trainer::session {
namespace {

std::shared_ptr<Logger> set_up_process(const world::RankEnv& rank_env) {
  // Ranks meet and watch each other with several threads; if one of them could not be started, the others would abort the process.
  constexpr int kThreadsBesideTraining = 8;
  if (rank_env.world_size > 1) world::check_threads(kThreadsBesideTraining);
  c10::initLogging();
  install_crash_handlers();
  install_stop_handlers();
  // If the reader of the output exits, the training continues.
  std::signal(SIGPIPE, SIG_IGN);
  // The progress bar is rank 0's.
  return make_console_logger(rank_env.rank, rank_env.rank != 0 && world::can_redraw_lines());
}

// Ranks that have met detect a rank that hangs, together, before each of them does so alone. A single process waits for its files, as most
// programs do.
std::chrono::milliseconds hang_limit_alone(const world::RankEnv& rank_env, std::chrono::seconds limit) {
  constexpr std::chrono::seconds kLater{5};
  return rank_env.world_size > 1 ? limit + kLater : std::chrono::seconds(0);
}

}  // namespace

RankProcess::RankProcess(const world::RankFlags& flags)
    : rank_env_(world::find_rank_env(flags, world::process_environment())),
      logger_(set_up_process(rank_env_)),
      monitor_(rank_env_, logger_),
      watch_(monitor_.activity(), {.hang = hang_limit_alone(rank_env_, supervision::kDefaultHangLimit)}, logger_,
             [this](const supervision::WatchVerdict& verdict) { leave(verdict.reason, verdict.exit_code); }) {}

void RankProcess::set_hang_limit(std::chrono::seconds limit) {
  monitor_.set_hang_limit(limit);
  watch_.set_hang_limit(hang_limit_alone(rank_env_, limit));
}

void RankProcess::leave(const std::string& reason, ExitCode exit_code) {
  const bool is_stopped = exit_code == ExitCode::kStopped;
  const auto text = is_stopped ? reason
                               : fmt::format("rank {} ({}) is stuck: {}; this rank exits", rank_env_.rank,
                                             to_string(distributed::this_process()), reason);
  monitor_.report(text, is_stopped ? exit_code : ExitCode::kFailure);
  // The store may end with rank 0; the others, which were asked to stop too, would report that as a failure.
  if (is_stopped && rank_env_.rank == 0 && rank_env_.world_size > 1) std::this_thread::sleep_for(std::chrono::seconds(1));
  monitor_.leave(exit_code);
}

ExitCode RankProcess::run(const std::function<ExitCode()>& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    throw Error(monitor_.explain(error), exit_code_of(error));
  }
}

}  // namespace trainer::session
