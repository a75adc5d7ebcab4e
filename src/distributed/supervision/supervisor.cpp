#include "distributed/supervision/supervisor.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "base/crash.h"
#include "base/file.h"
#include "base/signal.h"
#include "base/text.h"
#include "distributed/first_line.h"
#include "distributed/stores.h"
#include "distributed/supervision/failure.h"

namespace trainer::supervision {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The interval between two checks of the main thread.
constexpr milliseconds kInterval{100};
// The longest time between the exit of a rank and the launcher's message about it.
constexpr seconds kMessageTimeout{2};
// Added to the limit for files, so that after the rendezvous the failure detector reports a rank that hangs to all ranks before that rank
// ends itself.
constexpr seconds kLater{5};

// Uses the same text as the failure detector does after the rendezvous. The launcher reports only about ranks on this host.
Ending in_start_up(Failure::Kind kind, const launch::LauncherMessage& about, const std::string& detail) {
  auto rank = distributed::this_process();
  rank.process_id = about.process;
  const Failure failure{.kind = kind,
                        .rank = about.rank,
                        .process = to_string(rank),
                        .where = describe(distributed::ActivityState{.phase = distributed::Phase::kStartUp}),
                        .detail = detail};
  return {.text = to_string(failure) + std::string(launch::kThisRankExits)};
}

}  // namespace

std::optional<Ending> judge(const SupervisionLimits& limits, const MainThreadState& thread, const std::string& mine) {
  const auto place = [&] { return describe_with_file(thread.activity); };
  // After a stop request, a step or a checkpoint may take longer than limits.stop, because the training loop ends the run after it.
  const bool is_start_up = thread.activity.phase == distributed::Phase::kStartUp || thread.activity.phase == distributed::Phase::kConnect;
  const bool is_late = thread.since_stop && (*thread.since_stop >= limits.stop || thread.is_stop_repeated);
  if (is_late && (is_start_up || thread.with_file >= limits.stop)) {
    return Ending{.text = fmt::format("stopped on request in {}", place()), .exit_code = ExitCode::kStopped};
  }
  if (limits.file > milliseconds(0) && thread.with_file > limits.file) {
    const Failure failure{
        .kind = Failure::Kind::kStuck, .rank = -1, .process = mine, .where = place(), .detail = format_duration(thread.with_file)};
    return Ending{.text = to_string(failure) + std::string(launch::kThisRankExits), .is_cause = true};
  }
  return std::nullopt;
}

void StartUpJudge::receive(const launch::LauncherMessage& message, Clock::time_point now) {
  using Kind = launch::LauncherMessage::Kind;
  if (message.kind == Kind::kEnded) {
    if (!ended_) ended_ = message;
  } else if (message.kind == Kind::kContinued) {
    if (stopped_ && stopped_->rank == message.rank) stopped_.reset();
  } else if (!stopped_) {
    stopped_ = message;
    stopped_at_ = now;
  }
}

std::optional<Ending> StartUpJudge::judge(milliseconds limit, Clock::time_point now) const {
  if (ended_) return in_start_up(Failure::Kind::kEnded, *ended_, ended_->detail);
  if (stopped_ && now - stopped_at_ >= limit) return in_start_up(Failure::Kind::kSilent, *stopped_, format_duration(limit));
  return std::nullopt;
}

Supervisor::Supervisor(const world::RankEnv& rank_env, std::shared_ptr<Logger> logger, const SupervisionLimits& limits)
    : rank_(rank_env.rank),
      world_size_(rank_env.world_size),
      launcher_serves_store_(rank_env.launcher_serves_store),
      error_file_(rank_env.error_file),
      mine_(fmt::format("rank {} ({})", rank_env.rank, to_string(distributed::this_process()))),
      logger_(std::move(logger)),
      activity_(std::make_shared<distributed::Activity>([rank = rank_env.rank, size = rank_env.world_size](const auto& state) {
        describe_process(fmt::format("rank {} of {}, in {}", rank, size, describe(state)));
      })),
      limits_(limits) {
  activity_->enter(distributed::Phase::kStartUp);
  if (world_size_ > 1 && limits_.file == milliseconds(0)) limits_.file = kDefaultHangLimit + kLater;
  thread_ = std::jthread([this](const std::stop_token& stop) { supervise(stop); });
  if (rank_env.launcher_messages_descriptor < 0) return;
  launcher_messages_ =
      launch::read_messages(rank_env.launcher_messages_descriptor, [this](const launch::LauncherMessage& message) { add(message); });
}

Supervisor::~Supervisor() {
  launcher_messages_ = {};
  thread_ = {};
  detector_.reset();
}

void Supervisor::set_hang_limit(seconds limit) {
  const std::lock_guard lock(mutex_);
  limits_.stopped_rank = limit;
  if (world_size_ > 1) limits_.file = limit + kLater;
}

void Supervisor::begin(const distributed::Rendezvous& rendezvous) {
  FailureDetectorOptions options{.rank = rank_, .ranks = rendezvous.ranks, .rank0_serves_store = !launcher_serves_store_};
  {
    const std::lock_guard lock(mutex_);
    options.hang_limit = limits_.stopped_rank;
  }
  // Constructed without holding the mutex, because it connects to the store.
  auto detector =
      std::make_unique<FailureDetector>(*rendezvous.store, activity_, std::move(options), [this](const Failure& failure) { add(failure); });
  const std::lock_guard lock(mutex_);
  detector_ = std::move(detector);
}

// Calls explain() on the calling thread, because explain() waits for other events, which the supervising thread must handle.
void Supervisor::lose_connection(const std::string& error) { add(Ending{.text = explain(PeerError(error))}); }

void Supervisor::add(Event event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  changed_.notify_all();
}

void Supervisor::supervise(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const auto events = std::exchange(events_, {});
    lock.unlock();
    for (const auto& event : events) std::visit([this](const auto& happened) { handle(happened); }, event);
    look_at_main_thread();
    lock.lock();
    changed_.wait_for(lock, stop, kInterval, [this] { return !events_.empty(); });
  }
}

void Supervisor::handle(const launch::LauncherMessage& message) {
  std::unique_lock lock(mutex_);
  if (detector_) {
    if (message.kind == launch::LauncherMessage::Kind::kEnded) detector_->report_ended(message.rank, message.detail);
    return;
  }
  const auto now = Clock::now();
  start_up_.receive(message, now);
  const auto ending = start_up_.judge(limits_.stopped_rank, now);
  lock.unlock();
  if (ending) end_with(*ending);
}

void Supervisor::handle(const Failure& failure) {
  // The stacks help to find the cause. They appear on the console only if this rank is the cause or all ranks wait.
  const bool is_own = failure.rank == rank_ || failure.kind == Failure::Kind::kAllWait;
  logger_->log(is_own ? spdlog::level::err : spdlog::level::debug, "threads of this rank, in {}:\n{}", describe(activity_->read()),
               stacks_of_all_threads());
  const bool is_cause = failure.kind == Failure::Kind::kStuck || failure.kind == Failure::Kind::kLate;
  end_with({.text = to_string(failure) + std::string(launch::kThisRankExits), .is_cause = is_cause && is_own});
}

void Supervisor::look_at_main_thread() {
  const auto file = current_file_access();
  const auto with_file = file.text.empty() ? milliseconds(0) : std::chrono::duration_cast<milliseconds>(Clock::now() - file.since);
  const MainThreadState state{.activity = activity_->read(),
                              .with_file = with_file,
                              .since_stop = time_since_stop_signal(),
                              .is_stop_repeated = is_stop_repeated()};
  std::optional<Ending> ending;
  milliseconds slow_file;
  {
    const std::lock_guard lock(mutex_);
    slow_file = limits_.slow_file;
    ending = judge(limits_, state, mine_);
    if (!ending && !detector_) ending = start_up_.judge(limits_.stopped_rank, Clock::now());
  }
  if (ending) end_with(*ending);
  if (with_file > slow_file && file_warned_of_ != file.num_changes) {
    file_warned_of_ = file.num_changes;
    logger_->warn("{} has taken {} so far; check whether its file system responds", file.text, format_duration(with_file));
  }
}

void Supervisor::end_with(const Ending& ending) {
  const bool is_stopped = ending.exit_code == ExitCode::kStopped;
  report(ending.text, ending.is_cause ? ExitCode::kFailure : ending.exit_code);
  // Rank 0 may serve the store, so it ends last. The other ranks also received the stop request, and would report the end of the store as a
  // failure.
  if (is_stopped && rank_ == 0 && world_size_ > 1) std::this_thread::sleep_for(seconds(1));
  leave(ending.exit_code);
}

void Supervisor::report(const std::string& text, ExitCode exit_code) {
  const std::lock_guard lock(report_mutex_);
  const bool is_new = std::exchange(reported_, text) != text;
  if (is_new && !text.empty()) logger_->error("{}", text);
  // A file that names this rank as the cause must not be replaced by one in which another rank is the cause.
  if (is_new || exit_code != ExitCode::kPeer) write_error_file(error_file_, text, exit_code);
}

void Supervisor::leave(ExitCode exit_code) {
  logger_->flush();
  end_process(exit_code);
}

std::string Supervisor::explain(const std::exception& error) {
  // The text of a c10::Error contains a stack trace, and the system_error of a thread that cannot start does not name the limit that was
  // reached; first_line() corrects both.
  const bool is_foreign = dynamic_cast<const c10::Error*>(&error) != nullptr || dynamic_cast<const std::system_error*>(&error) != nullptr;
  if (is_foreign) return explain(Error(distributed::first_line(error)));
  if (dynamic_cast<const AgreedError*>(&error) != nullptr) return error.what();
  const bool is_lost = exit_code_of(error) == ExitCode::kPeer;
  if (!detector_) {
    // The launcher knows which rank was lost; its message ends this process.
    if (is_lost && launcher_messages_.joinable()) std::this_thread::sleep_for(kMessageTimeout);
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

void Supervisor::end() {
  if (detector_) detector_->finish();
}

}  // namespace trainer::supervision
