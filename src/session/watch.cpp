#include "session/watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/crash.h"
#include "base/text.h"
#include "config/sections/distributed.h"
#include "launch/error_file.h"
#include "world/host_resources.h"

namespace trainer::session {
namespace {

using distributed::Failure;

// From the end of a rank until the launcher's word of it.
constexpr std::chrono::seconds kNoticePatience{2};

// As the ranks describe it once they have met. The launcher tells of its own host alone.
Failure in_start_up(Failure::Kind kind, const launch::Notice& about, const std::string& detail) {
  return {.kind = kind,
          .rank = about.rank,
          .process = fmt::format("process {} on {}", about.process, world::host_name()),
          .where = describe(distributed::ActivityState{.phase = distributed::Phase::kStartUp}),
          .detail = detail};
}

}  // namespace

Watch::Watch(const world::Place& place, std::shared_ptr<Logger> logger)
    : rank_(place.rank),
      launcher_serves_store_(place.launcher_serves_store),
      error_file_(place.error_file),
      logger_(std::move(logger)),
      activity_(std::make_shared<distributed::Activity>([rank = place.rank, size = place.world_size](const auto& state) {
        describe_process(fmt::format("rank {} of {}, in {}", rank, size, describe(state)));
      })) {
  activity_->enter(distributed::Phase::kStartUp);
  hang_limit_ = std::chrono::seconds(config::DistributedSection().hang_seconds);
  if (place.notices_descriptor < 0) return;
  guard_ = std::thread([this] { wait_for_stopped_rank(); });
  notices_ = std::make_unique<launch::NoticeReader>(place.notices_descriptor, [this](const launch::Notice& notice) { hear(notice); });
}

Watch::~Watch() {
  notices_.reset();
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  if (guard_.joinable()) guard_.join();
  health_.reset();
}

void Watch::set_hang_limit(std::chrono::seconds limit) {
  const std::lock_guard lock(mutex_);
  hang_limit_ = limit;
  changed_.notify_all();
}

void Watch::begin(const distributed::Meeting& meeting) {
  distributed::HealthOptions options{.rank = rank_, .first_serves_store = !launcher_serves_store_, .hang_limit = hang_limit_};
  for (const auto& rank : meeting.ranks) options.processes.push_back(fmt::format("process {} on {}", rank.process_id, rank.host));
  const auto on_failure = [this](const Failure& failure) {
    // Where this rank stands, for those who look for the reason; on the console only what it did itself.
    const bool is_own = failure.rank == rank_ || failure.kind == Failure::Kind::kAllWait;
    logger_->log(is_own ? spdlog::level::err : spdlog::level::debug, "threads of this rank, in {}:\n{}", describe(activity_->read()),
                 stacks_of_all_threads());
    leave(to_string(failure), failure.kind == Failure::Kind::kStuck && is_own);
  };
  const std::lock_guard lock(mutex_);
  health_ = std::make_unique<distributed::Health>(*meeting.store, activity_, std::move(options), on_failure);
}

void Watch::hear(const launch::Notice& notice) {
  const std::lock_guard lock(mutex_);
  if (notice.kind != launch::Notice::Kind::kEnded) {
    const bool is_stopped = notice.kind == launch::Notice::Kind::kStopped;
    if (is_stopped && !stopped_) {
      stopped_ = notice;
      stopped_at_ = std::chrono::steady_clock::now();
    } else if (!is_stopped && stopped_ && stopped_->rank == notice.rank) {
      stopped_.reset();
    }
    changed_.notify_all();
    return;
  }
  if (!health_) leave(to_string(in_start_up(Failure::Kind::kEnded, notice, notice.detail)), /*is_own=*/false);
  health_->report_ended(notice.rank, notice.detail);
}

void Watch::wait_for_stopped_rank() {
  std::unique_lock lock(mutex_);
  while (!is_over_ && !health_) {
    if (!stopped_) {
      changed_.wait(lock);
    } else if (changed_.wait_until(lock, stopped_at_ + hang_limit_) == std::cv_status::timeout && stopped_ && !health_) {
      leave(to_string(in_start_up(Failure::Kind::kSilent, *stopped_, format_duration(hang_limit_))), /*is_own=*/false);
    }
  }
}

void Watch::say(const std::string& text, ExitCode exit_code) {
  if (!text.empty()) logger_->error("{}", text);
  launch::write_error_file(error_file_, text, exit_code);
}

void Watch::leave(const std::string& text, bool is_own) {
  const auto line = text + "; this rank ends";
  logger_->error("{}", line);
  launch::write_error_file(error_file_, line, is_own ? ExitCode::kFailure : ExitCode::kPeer);
  logger_->flush();
  _exit(static_cast<int>(ExitCode::kPeer));
}

std::string Watch::explain(const std::exception& error) {
  if (dynamic_cast<const AgreedError*>(&error) != nullptr) return error.what();
  const auto* said = dynamic_cast<const Error*>(&error);
  const bool is_lost = said != nullptr && said->exit_code() == ExitCode::kPeer;
  if (!health_) {
    // The launcher knows who was lost, and what it says ends this process.
    if (is_lost && notices_) std::this_thread::sleep_for(kNoticePatience);
    return error.what();
  }
  if (!is_lost) {
    health_->report();
    return error.what();
  }
  const auto failure = health_->first_failure();
  return failure ? to_string(*failure) + "; this rank ends" : error.what();
}

void Watch::end() {
  if (health_) health_->finish();
}

}  // namespace trainer::session
