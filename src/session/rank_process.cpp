#include "session/rank_process.h"

#include <c10/util/Logging.h>

#include <csignal>
#include <cstdlib>

#include "base/crash.h"
#include "base/signal.h"
#include "world/host_resources.h"

namespace trainer::session {
namespace {

std::shared_ptr<Logger> set_up_process(int rank) {
  // LibTorch would print a stack trace for a lost connection; this program reports it in one sentence.
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  c10::initLogging();
  install_crash_handlers();
  install_stop_handlers();
  // If the reader of the output exits, the training continues.
  std::signal(SIGPIPE, SIG_IGN);
  // The progress bar is rank 0's.
  return make_console_logger(rank, rank != 0 && world::can_redraw_lines());
}

}  // namespace

RankProcess::RankProcess(const world::RankFlags& flags)
    : rank_env_(world::find_rank_env(flags, world::process_environment())),
      logger_(set_up_process(rank_env_.rank)),
      monitor_(rank_env_, logger_) {}

ExitCode RankProcess::run(const std::function<ExitCode()>& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    throw Error(monitor_.explain(error), exit_code_of(error));
  }
}

ExitCode exit_code_of(const std::exception& error) {
  const auto* own_error = dynamic_cast<const Error*>(&error);
  return own_error != nullptr ? own_error->exit_code() : ExitCode::kFailure;
}

}  // namespace trainer::session
