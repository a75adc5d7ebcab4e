#include "distributed/supervision/heartbeats.h"

#include <algorithm>

namespace trainer::supervision {
namespace {

using distributed::ActivityState;
using distributed::Phase;
using std::chrono::milliseconds;

// Whether a rank that stays in this phase too long counts as failed. At the start and at the end, where ranks may wait long for other ranks
// or downloads, this requires that the rank is using a file.
bool is_timed(const ActivityState& state) { return (state.phase != Phase::kStartUp && state.phase != Phase::kEnd) || !state.file.empty(); }

void keep_longest(Digest::Longest& longest, int rank, milliseconds duration) {
  if (longest.rank < 0 || duration > longest.duration) longest = {rank, duration};
}

}  // namespace

HeartbeatLog::HeartbeatLog(int num_ranks, Clock::duration silence_limit, Clock::time_point now)
    : silence_limit_(silence_limit), ranks_(static_cast<size_t>(num_ranks), {.newest = {}, .last_heartbeat = now, .last_change = now}) {}

Digest HeartbeatLog::digest(const std::vector<Heartbeat>& heartbeats, Clock::time_point now) {
  const auto since = [now](Clock::time_point time) { return std::chrono::duration_cast<milliseconds>(now - time); };
  Digest digest{.number = ++num_digests_, .rank0 = heartbeats.front().state};
  bool all_wait = true;
  milliseconds shortest_wait = milliseconds::max();
  for (size_t i = 0; i < ranks_.size(); ++i) {
    auto& rank = ranks_[i];
    const auto& heartbeat = heartbeats[i];
    const auto& state = heartbeat.state;
    if (heartbeat.number != rank.newest.number) rank.last_heartbeat = now;
    if (state.num_changes != rank.newest.state.num_changes) rank.last_change = now;
    rank.newest = heartbeat;
    const auto number = static_cast<int>(i);
    if (number != 0) keep_longest(digest.silent, number, since(rank.last_heartbeat));
    const bool is_timed_now = is_timed(state) && now - rank.last_heartbeat < silence_limit_;
    if (is_timed_now && !state.is_waiting) keep_longest(digest.stuck, number, since(rank.last_change));
    all_wait = all_wait && is_timed_now && state.is_waiting;
    shortest_wait = std::min(shortest_wait, since(rank.last_change));
  }
  if (all_wait) digest.all_wait = shortest_wait;
  return digest;
}

std::optional<Diagnosis> diagnose(const Knowledge& knowledge, const DiagnosisLimits& limits, Clock::time_point now) {
  const auto& digest = knowledge.digest;
  // Once this rank has lost a connection, a few missed heartbeats are enough: the rank that has missed them has probably ended.
  const auto silence_limit = knowledge.has_lost_connection ? limits.missed : limits.hang;
  const auto silent = [&](int rank, Clock::duration silence) {
    const bool has_ended = knowledge.has_lost_connection && silence < limits.hang;
    return Diagnosis{.kind = has_ended ? Failure::Kind::kEnded : Failure::Kind::kSilent, .rank = rank, .duration = limits.hang};
  };
  if (limits.rank != 0) {
    if (limits.rank0_serves_store && now - knowledge.last_answer > limits.hang) {
      return Diagnosis{.kind = Failure::Kind::kSilent, .rank = 0, .duration = limits.hang};
    }
    // While the store does not answer, the state of rank 0 is unknown.
    const auto silence = knowledge.last_answer - knowledge.last_digest;
    if (silence > silence_limit) return silent(0, silence);
  }
  // An old digest does not show the current state of the ranks; a delay of rank 0 or the store must not be attributed to another rank.
  if (now - knowledge.last_digest > limits.missed) return std::nullopt;
  // The digest may contain any number, because everyone who reaches the store of a run without a secret can write to it.
  const auto is_rank = [&](int rank) { return rank >= 0 && rank < limits.num_ranks; };
  const auto& [rank, duration] = digest.silent;
  if (is_rank(rank) && rank != limits.rank && duration > silence_limit) return silent(rank, duration);
  if (is_rank(digest.stuck.rank) && digest.stuck.duration > limits.hang) {
    return Diagnosis{.kind = Failure::Kind::kStuck, .rank = digest.stuck.rank, .duration = digest.stuck.duration};
  }
  if (digest.all_wait > limits.hang) return Diagnosis{.kind = Failure::Kind::kAllWait, .rank = limits.rank, .duration = digest.all_wait};
  return std::nullopt;
}

}  // namespace trainer::supervision
