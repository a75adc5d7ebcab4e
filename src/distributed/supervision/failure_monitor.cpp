#include "distributed/supervision/failure_monitor.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <system_error>

#include "base/crash.h"
#include "base/exit_status.h"
#include "base/text.h"
#include "distributed/first_line.h"
#include "distributed/stores.h"
#include "distributed/supervision/failure.h"
#include "distributed/supervision/options.h"

namespace trainer::supervision {
namespace {

// Longest time from the end of a rank to the launcher's message about it.
constexpr std::chrono::seconds kMessageTimeout{2};

// The same description as from the failure detector after the ranks have met. The launcher reports only about this host.
Failure in_start_up(Failure::Kind kind, const launch::LauncherMessage& about, const std::string& detail) {
  auto rank = distributed::this_process();
  rank.process_id = about.process;
  return {.kind = kind,
          .rank = about.rank,
          .process = to_string(rank),
          .where = describe(distributed::ActivityState{.phase = distributed::Phase::kStartUp}),
          .detail = detail};
}

}  // namespace

FailureMonitor::FailureMonitor(const world::RankEnv& rank_env, std::shared_ptr<Logger> logger)
    : rank_(rank_env.rank),
      launcher_serves_store_(rank_env.launcher_serves_store),
      error_file_(rank_env.error_file),
      logger_(std::move(logger)),
      activity_(std::make_shared<distributed::Activity>([rank = rank_env.rank, size = rank_env.world_size](const auto& state) {
        describe_process(fmt::format("rank {} of {}, in {}", rank, size, describe(state)));
      })) {
  activity_->enter(distributed::Phase::kStartUp);
  hang_limit_ = kDefaultHangLimit;
  if (rank_env.launcher_messages_descriptor < 0) return;
  guard_ = std::thread([this] { wait_for_stopped_rank(); });
  launcher_messages_ = std::make_unique<launch::LauncherMessageReader>(
      rank_env.launcher_messages_descriptor, [this](const launch::LauncherMessage& message) { receive(message); });
}

FailureMonitor::~FailureMonitor() {
  launcher_messages_.reset();
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  if (guard_.joinable()) guard_.join();
  detector_.reset();
}

void FailureMonitor::set_hang_limit(std::chrono::seconds limit) {
  const std::lock_guard lock(mutex_);
  hang_limit_ = limit;
  changed_.notify_all();
}

void FailureMonitor::begin(const distributed::Meeting& meeting) {
  FailureDetectorOptions options{
      .rank = rank_, .ranks = meeting.ranks, .rank0_serves_store = !launcher_serves_store_, .hang_limit = hang_limit_};
  const auto on_failure = [this](const Failure& failure) {
    // The stacks help to find the cause; they appear on the console only if this rank is the cause or all ranks wait.
    const bool is_own = failure.rank == rank_ || failure.kind == Failure::Kind::kAllWait;
    logger_->log(is_own ? spdlog::level::err : spdlog::level::debug, "threads of this rank, in {}:\n{}", describe(activity_->read()),
                 stacks_of_all_threads());
    const bool is_cause = failure.kind == Failure::Kind::kStuck || failure.kind == Failure::Kind::kLate;
    leave_because(to_string(failure), is_cause && is_own);
  };
  const std::lock_guard lock(mutex_);
  detector_ = std::make_unique<FailureDetector>(*meeting.store, activity_, std::move(options), on_failure);
}

void FailureMonitor::receive(const launch::LauncherMessage& message) {
  const std::lock_guard lock(mutex_);
  if (message.kind != launch::LauncherMessage::Kind::kEnded) {
    const bool is_stopped = message.kind == launch::LauncherMessage::Kind::kStopped;
    if (is_stopped && !stopped_) {
      stopped_ = message;
      stopped_at_ = std::chrono::steady_clock::now();
    } else if (!is_stopped && stopped_ && stopped_->rank == message.rank) {
      stopped_.reset();
    }
    changed_.notify_all();
    return;
  }
  if (!detector_) leave_because(to_string(in_start_up(Failure::Kind::kEnded, message, message.detail)), /*is_own=*/false);
  detector_->report_ended(message.rank, message.detail);
}

void FailureMonitor::wait_for_stopped_rank() {
  std::unique_lock lock(mutex_);
  while (!is_over_ && !detector_) {
    if (!stopped_) {
      changed_.wait(lock);
    } else if (changed_.wait_until(lock, stopped_at_ + hang_limit_) == std::cv_status::timeout && stopped_ && !detector_) {
      leave_because(to_string(in_start_up(Failure::Kind::kSilent, *stopped_, format_duration(hang_limit_))), /*is_own=*/false);
    }
  }
}

void FailureMonitor::report(const std::string& text, ExitCode exit_code) {
  if (!text.empty()) logger_->error("{}", text);
  write_error_file(error_file_, text, exit_code);
}

void FailureMonitor::leave(ExitCode exit_code) {
  logger_->flush();
  end_process(exit_code);
}

void FailureMonitor::leave_because(const std::string& failure, bool is_own) {
  report(failure + std::string(launch::kThisRankExits), is_own ? ExitCode::kFailure : ExitCode::kPeer);
  leave(ExitCode::kPeer);
}

std::string FailureMonitor::explain(const std::exception& error) {
  // The text of a c10::Error holds a stack trace, and the system_error of a thread does not name the limit that refused it; first_line()
  // mends both.
  const bool is_foreign = dynamic_cast<const c10::Error*>(&error) != nullptr || dynamic_cast<const std::system_error*>(&error) != nullptr;
  if (is_foreign) return explain(Error(distributed::first_line(error)));
  if (dynamic_cast<const AgreedError*>(&error) != nullptr) return error.what();
  const bool is_lost = exit_code_of(error) == ExitCode::kPeer;
  if (!detector_) {
    // The launcher knows which rank was lost, and its message ends this process.
    if (is_lost && launcher_messages_) std::this_thread::sleep_for(kMessageTimeout);
    return error.what();
  }
  if (!is_lost) {
    detector_->report_own_failure();
    return error.what();
  }
  auto failure = detector_->first_failure();
  if (const auto* late = dynamic_cast<const distributed::LateRank*>(&error); late != nullptr && !failure) {
    detector_->report_late(late->rank, late->waited);
    failure = detector_->first_failure();
  }
  return failure ? to_string(*failure) + std::string(launch::kThisRankExits) : error.what();
}

void FailureMonitor::leave_after_lost_connection(const std::string& error) {
  report(explain(PeerError(error)), ExitCode::kPeer);
  leave(ExitCode::kPeer);
}

void FailureMonitor::end() {
  if (detector_) detector_->finish();
}

}  // namespace trainer::supervision
