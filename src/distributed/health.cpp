#include "distributed/health.h"

#include <fmt/format.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/text.h"
#include "distributed/store_json.h"

namespace trainer::distributed {
namespace {

using std::chrono::milliseconds;

const std::string kFailureKey = "health/failure";
// Between two beats of a rank, which reads those of all others too.
constexpr milliseconds kLongestInterval{200};
constexpr milliseconds kIntervalPerRank{2};
// Intervals after which a rank that says nothing is gone, once it is known that some rank is.
constexpr int kMissedBeats = 4;
// How long a rank that ends waits until the others know why.
constexpr milliseconds kFarewell{3000};

std::string beat_key(int rank) { return fmt::format("health/beat/{}", rank); }
std::string known_key(int rank) { return fmt::format("health/known/{}", rank); }

nlohmann::json beat_json(const ActivityState& state, uint64_t num_beats) {
  return {static_cast<int>(state.phase), state.step, state.is_waiting, state.num_changes, num_beats};
}

ActivityState state_of(const nlohmann::json& beat) {
  return {.phase = static_cast<Phase>(beat.at(0).get<int>()), .step = beat.at(1), .is_waiting = beat.at(2), .num_changes = beat.at(3)};
}

// Whether a rank that is in this phase for long hangs: at the start and at the end others are waited for, and data is downloaded.
bool is_timed(const ActivityState& state) { return state.phase != Phase::kStartUp && state.phase != Phase::kEnd; }

}  // namespace

Health::Health(c10d::Store& store, std::shared_ptr<const Activity> activity, HealthOptions options,
               std::function<void(const Failure&)> on_failure)
    : options_(std::move(options)),
      interval_(std::clamp<milliseconds>(options_.hang_limit / 20, milliseconds(50), kLongestInterval) +
                kIntervalPerRank * static_cast<int>(options_.processes.size())),
      activity_(std::move(activity)),
      on_failure_(std::move(on_failure)),
      store_(store.clone()),
      last_answer_(Clock::now()) {
  peers_.assign(options_.processes.size(), {.state = {}, .last_beat = last_answer_, .last_change = last_answer_});
  talker_ = std::thread([this] { talk(); });
  watcher_ = std::thread([this] { watch(); });
}

Health::~Health() {
  finish();
  talker_.join();
  watcher_.join();
}

void Health::finish() {
  const std::lock_guard lock(mutex_);
  is_finished_ = true;
  changed_.notify_all();
}

void Health::report() {
  std::unique_lock lock(mutex_);
  is_asked_ = true;
  accuse(describe(Failure::Kind::kFailed, options_.rank));
  wait_until_known(lock, kFarewell);
}

void Health::report_ended(int rank, const std::string& detail) {
  const std::lock_guard lock(mutex_);
  auto failure = describe(Failure::Kind::kEnded, rank);
  failure.detail = detail;
  accuse(failure);
}

std::optional<Failure> Health::first_failure() {
  std::unique_lock lock(mutex_);
  is_asked_ = true;
  wait_until_known(lock, 2 * kMissedBeats * interval_ + kFarewell);
  return failure_;
}

// Rank 0 stays until the others have heard, for the store ends with it.
void Health::wait_until_known(std::unique_lock<std::mutex>& lock, Clock::duration patience) {
  changed_.wait_for(lock, patience, [&] { return is_finished_ || (failure_ && all_know_); });
}

void Health::accuse(const Failure& failure) {
  if (accusation_ || failure_) return;
  accusation_ = failure;
  accused_at_ = Clock::now();
  changed_.notify_all();
}

Failure Health::describe(Failure::Kind kind, int rank, Clock::duration duration) const {
  const auto& state = rank == options_.rank ? activity_->read() : peers_[static_cast<size_t>(rank)].state;
  return {.kind = kind,
          .rank = rank,
          .process = options_.processes[static_cast<size_t>(rank)],
          .where = distributed::describe(state),
          .detail = kind == Failure::Kind::kEnded ? "" : format_duration(std::chrono::duration_cast<milliseconds>(duration))};
}

void Health::talk() {
  try {
    while (true) {
      exchange_beats();
      settle_failure();
      std::unique_lock lock(mutex_);
      if (is_finished_) return;
      // An accusation is not kept waiting.
      changed_.wait_for(lock, interval_, [&] { return is_finished_ || (accusation_ && !failure_); });
    }
  } catch (const std::exception&) {
    // The store has ended, and with it whoever serves it; the launcher may have a word to say on how.
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, interval_, [&] { return is_finished_ || accusation_ || failure_; });
    if (is_finished_ || failure_) return;
    failure_ = accusation_ ? *accusation_ : describe(Failure::Kind::kEnded, 0);
    if (!options_.first_serves_store && !accusation_) failure_->process = "the launcher, which serves the store";
    all_know_ = true;
    changed_.notify_all();
  }
}

void Health::exchange_beats() {
  uint64_t num_beats = 0;
  {
    const std::lock_guard lock(mutex_);
    num_beats = ++peers_[static_cast<size_t>(options_.rank)].num_beats;
  }
  store_->set(beat_key(options_.rank), to_bytes(beat_json(activity_->read(), num_beats)));
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    const auto key = beat_key(static_cast<int>(rank));
    const bool is_known = peers_[rank].num_beats > 0 || store_->check({key});
    const auto beat = is_known ? from_bytes(store_->get(key)) : beat_json({}, 0);
    const std::lock_guard lock(mutex_);
    auto& peer = peers_[rank];
    const auto state = state_of(beat);
    last_answer_ = Clock::now();
    if (static_cast<int>(rank) != options_.rank && beat.at(4) != peer.num_beats) peer.last_beat = last_answer_;
    if (state.num_changes != peer.state.num_changes) peer.last_change = last_answer_;
    peer.state = state;
    peer.num_beats = beat.at(4);
  }
}

// The first accusation that reaches the store is what all ranks say.
void Health::settle_failure() {
  std::optional<Failure> accusation;
  {
    const std::lock_guard lock(mutex_);
    accusation = accusation_;
    // What it said last may have come after the accusation.
    if (accusation && accusation->rank != options_.rank) {
      accusation->where = distributed::describe(peers_[static_cast<size_t>(accusation->rank)].state);
    }
  }
  nlohmann::json said;
  if (accusation) {
    said = from_bytes(store_->compareSet(kFailureKey, {}, to_bytes(*accusation)));
  } else if (store_->check({kFailureKey})) {
    said = from_bytes(store_->get(kFailureKey));
  } else {
    return;
  }
  const auto failure = said.get<Failure>();
  store_->set(known_key(options_.rank), std::vector<uint8_t>{1});
  bool all_know = true;
  for (size_t rank = 0; options_.rank == 0 && rank < peers_.size(); ++rank) {
    all_know = all_know && (static_cast<int>(rank) == failure.rank || store_->check({known_key(static_cast<int>(rank))}));
  }
  const std::lock_guard lock(mutex_);
  failure_ = failure;
  all_know_ = all_know;
  changed_.notify_all();
}

void Health::watch() {
  std::unique_lock lock(mutex_);
  while (!is_finished_) {
    const auto now = Clock::now();
    if (!failure_) {
      if (auto found = judge(now)) accuse(*found);
      // The store does not answer.
      if (accusation_ && now - accused_at_ > kMissedBeats * interval_ + kFarewell) {
        failure_ = accusation_;
        all_know_ = true;
        changed_.notify_all();
      }
    }
    if (failure_ && !is_asked_) {
      wait_until_known(lock, kFarewell);
      if (is_asked_ || is_finished_) return;
      is_asked_ = true;
      const auto failure = *failure_;
      lock.unlock();
      on_failure_(failure);
      return;
    }
    changed_.wait_for(lock, interval_);
  }
}

std::optional<Failure> Health::judge(Clock::time_point now) const {
  const auto limit = options_.hang_limit;
  // Once a connection is lost, a rank that says nothing is gone.
  const Clock::duration silence_limit = is_asked_ ? Clock::duration(kMissedBeats * interval_) : Clock::duration(limit);
  if (options_.first_serves_store && options_.rank != 0 && now - last_answer_ > limit) {
    return describe(Failure::Kind::kSilent, 0, limit);
  }
  std::optional<int> silent, stuck;
  bool all_wait = true;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    const auto& peer = peers_[static_cast<size_t>(rank)];
    // While the store does not answer nobody is heard.
    const auto silence = rank == options_.rank ? Clock::duration::zero() : last_answer_ - peer.last_beat;
    const bool is_silent = silence > silence_limit;
    const bool answers = silence < kMissedBeats * interval_;
    const bool is_old = answers && is_timed(peer.state) && last_answer_ - peer.last_change > limit;
    if (is_silent && (!silent || peer.last_beat < peers_[static_cast<size_t>(*silent)].last_beat)) silent = rank;
    if (is_old && !peer.state.is_waiting && !stuck) stuck = rank;
    all_wait = all_wait && is_old && peer.state.is_waiting;
  }
  const auto since = [&](Clock::time_point time) { return last_answer_ - time; };
  if (silent) {
    const auto silence = since(peers_[static_cast<size_t>(*silent)].last_beat);
    return describe(is_asked_ && silence < limit ? Failure::Kind::kEnded : Failure::Kind::kSilent, *silent, limit);
  }
  if (stuck) return describe(Failure::Kind::kStuck, *stuck, since(peers_[static_cast<size_t>(*stuck)].last_change));
  if (all_wait) return describe(Failure::Kind::kAllWait, options_.rank, since(peers_[static_cast<size_t>(options_.rank)].last_change));
  return std::nullopt;
}

}  // namespace trainer::distributed
