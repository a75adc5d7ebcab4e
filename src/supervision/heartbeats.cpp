#include "supervision/heartbeats.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace trainer::supervision {
namespace {

using distributed::ActivityState;
using distributed::Phase;
using std::chrono::milliseconds;

nlohmann::json state_json(const ActivityState& state) {
  return {static_cast<int>(state.phase), state.step, state.is_waiting, state.num_changes};
}

ActivityState parse_state(const nlohmann::json& json) {
  return {.phase = static_cast<Phase>(json.at(0).get<int>()), .step = json.at(1), .is_waiting = json.at(2), .num_changes = json.at(3)};
}

nlohmann::json longest_json(const Digest::Longest& longest) { return {longest.rank, longest.duration.count()}; }

Digest::Longest parse_longest(const nlohmann::json& json) {
  return {.rank = json.at(0), .duration = milliseconds(json.at(1).get<int64_t>())};
}

// Whether a rank that stays in this phase too long has failed. Not at the start and at the end, where ranks wait for others and download.
bool is_timed(const ActivityState& state) { return state.phase != Phase::kStartUp && state.phase != Phase::kEnd; }

void keep_longest(Digest::Longest& longest, int rank, milliseconds duration) {
  if (longest.rank < 0 || duration > longest.duration) longest = {rank, duration};
}

}  // namespace

void to_json(nlohmann::json& json, const Heartbeat& heartbeat) { json = {state_json(heartbeat.state), heartbeat.number}; }

void from_json(const nlohmann::json& json, Heartbeat& heartbeat) { heartbeat = {.state = parse_state(json.at(0)), .number = json.at(1)}; }

void to_json(nlohmann::json& json, const Digest& digest) {
  json = {digest.number, state_json(digest.rank0), longest_json(digest.silent), longest_json(digest.stuck), digest.all_wait.count()};
}

void from_json(const nlohmann::json& json, Digest& digest) {
  digest = {.number = json.at(0),
            .rank0 = parse_state(json.at(1)),
            .silent = parse_longest(json.at(2)),
            .stuck = parse_longest(json.at(3)),
            .all_wait = milliseconds(json.at(4).get<int64_t>())};
}

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
