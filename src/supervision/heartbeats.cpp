#include "supervision/heartbeats.h"

#include <algorithm>

namespace trainer::supervision {
namespace {

using distributed::ActivityState;
using distributed::Phase;
using std::chrono::milliseconds;

// Whether a rank that stays in this phase too long has failed. At the start and at the end, where ranks wait for others and download, only
// if it is using a file.
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

}  // namespace trainer::supervision
