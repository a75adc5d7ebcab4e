#include "launch/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.h"
#include "base/text.h"

namespace trainer::launch {
namespace {

constexpr size_t kLongestHostName = 255;

// Host names are shown to the user, and anyone can send one.
bool is_host_name(const std::string& text) {
  const auto is_allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_'; };
  return !text.empty() && text.size() <= kLongestHostName && std::ranges::all_of(text, is_allowed);
}

}  // namespace

bool is_final(int exit_code) {
  constexpr std::array kFinal = {ExitCode::kDone, ExitCode::kUsage, ExitCode::kData, ExitCode::kCheckpoint, ExitCode::kStopped};
  return std::ranges::find(kFinal, static_cast<ExitCode>(exit_code)) != kFinal.end();
}

std::string Membership::name(const Member& member) const { return fmt::format("node {} ({})", member.join.node, member.join.host); }

std::string Membership::refusal(const Join& newcomer) const {
  if (newcomer.node < 0 || newcomer.node >= limits_.max_nodes || newcomer.num_processes < 1 || !is_host_name(newcomer.host)) {
    return "malformed request to join";
  }
  if (newcomer.min_nodes != limits_.min_nodes || newcomer.max_nodes != limits_.max_nodes) {
    return fmt::format("--nnodes is {}:{} on {} and {}:{} on node 0; give all launchers the same", newcomer.min_nodes, newcomer.max_nodes,
                       newcomer.host, limits_.min_nodes, limits_.max_nodes);
  }
  for (const auto& [node, member] : members_) {
    if (node == newcomer.node || member.join.num_processes == newcomer.num_processes) continue;
    return fmt::format("{} starts {} processes and {} starts {}; give all launchers the same --nproc-per-node", newcomer.host,
                       newcomer.num_processes, name(member), member.join.num_processes);
  }
  return "";
}

Membership::Orders Membership::join(const Join& newcomer, Time now) {
  const int node = newcomer.node;
  if (state_ == State::kOver) {
    auto order = farewell_;
    order.node = node;
    return {order};
  }
  if (const auto text = refusal(newcomer); !text.empty()) {
    return {{.kind = Order::Kind::kFinish, .node = node, .text = text, .exit_code = static_cast<int>(ExitCode::kUsage), .is_error = true}};
  }
  if (const auto same = members_.find(node); same != members_.end()) {
    const auto& holder = same->second.join;
    return {{.kind = Order::Kind::kRetry,
             .node = node,
             .text = fmt::format("--node-rank {} is taken by process {} on {}, unless that is lost; give each host its own number", node,
                                 holder.process_id, holder.host)}};
  }
  const auto& member = members_.emplace(node, Member{.join = newcomer}).first->second;
  Orders orders;
  if (state_ == State::kRunning) {
    failure_is_counted_ = false;
    orders = restart(name(member) + " joins", Order::Kind::kStop, now);
  } else {
    orders = meet(now);
  }
  // A launcher that gets no answer would take this one for another program.
  const bool is_answered = std::ranges::any_of(orders, [&](const Order& order) { return order.node == node; });
  if (!is_answered) orders.push_back({.node = node, .text = "waiting for the other nodes"});
  return orders;
}

Membership::Orders Membership::end(int node, const Ended& ended, Time now) {
  const auto found = members_.find(node);
  if (found == members_.end() || state_ == State::kOver) return {};
  auto& member = found->second;
  if (ended.was_asked_to_stop) {
    const int exit_code = is_final(ended.exit_code) ? ended.exit_code : static_cast<int>(ExitCode::kStopped);
    return finish(exit_code, name(member) + " was asked to stop", false);
  }
  // The start order and this report have crossed, or the launcher reports twice.
  if (member.is_ready) return {};
  member.is_ready = true;
  member.join.port = ended.port;
  const bool stopped_for_a_restart = state_ == State::kEnding && ended.exit_code == static_cast<int>(ExitCode::kStopped);
  if (is_final(ended.exit_code) && !stopped_for_a_restart) return finish(ended.exit_code, "", false);
  if (state_ != State::kRunning) return meet(now);
  const bool is_victim = ended.exit_code == static_cast<int>(ExitCode::kPeer);
  return fail(is_victim ? fmt::format("the ranks of {} have lost another rank", name(member))
                        : fmt::format("the ranks of {} have ended with exit code {}", name(member), ended.exit_code),
              Order::Kind::kEnd, ended.exit_code, now);
}

Membership::Orders Membership::lose(int node, Time now) {
  const auto found = members_.find(node);
  if (found == members_.end()) return {};
  const bool took_part = !found->second.is_ready;
  const auto reason = name(found->second) + " is lost";
  members_.erase(found);
  if (state_ == State::kOver) return {};
  if (!took_part) return state_ == State::kRunning ? Orders{} : meet(now);
  return fail(reason, Order::Kind::kKill, static_cast<int>(ExitCode::kPeer), now);
}

Membership::Orders Membership::pass(Time now) { return state_ == State::kMeeting ? meet(now) : Orders{}; }

std::optional<Membership::Time> Membership::deadline() const {
  if (state_ != State::kMeeting) return std::nullopt;
  return last_call_ ? *last_call_ : meeting_since_ + limits_.join_timeout;
}

Membership::Orders Membership::fail(const std::string& reason, Order::Kind kind, int exit_code, Time now) {
  if (!failure_is_counted_) {
    if (num_failures_ == limits_.max_restarts)
      return finish(exit_code, limits_.max_restarts > 0 ? reason + "; no restart is left" : reason, true);
    failure_is_counted_ = true;
    ++num_failures_;
    return restart(fmt::format("{}: restart {} of {}", reason, num_failures_, limits_.max_restarts), kind, now);
  }
  return restart(reason, kind, now);
}

// Ends the attempt: `kind` for the members whose processes run.
Membership::Orders Membership::restart(const std::string& reason, Order::Kind kind, Time now) {
  state_ = State::kEnding;
  Orders orders;
  for (const auto& [node, member] : members_) {
    orders.push_back({.kind = member.is_ready ? Order::Kind::kWait : kind, .node = node, .text = reason});
  }
  std::ranges::copy(meet(now), std::back_inserter(orders));
  return orders;
}

bool Membership::all_are_ready() const {
  return std::ranges::all_of(members_, [](const auto& entry) { return entry.second.is_ready; });
}

Membership::Orders Membership::meet(Time now) {
  if (!all_are_ready()) return {};
  if (state_ == State::kEnding) {
    state_ = State::kMeeting;
    meeting_since_ = now;
    last_call_.reset();
  }
  const int num_ready = static_cast<int>(members_.size());
  const bool are_enough = num_ready >= limits_.min_nodes && members_.contains(0);
  if (are_enough && (num_ready == limits_.max_nodes || (last_call_ && now >= *last_call_))) return start();
  if (!are_enough) {
    last_call_.reset();
    if (now >= meeting_since_ + limits_.join_timeout) {
      return finish(static_cast<int>(ExitCode::kPeer),
                    fmt::format("{} of at least {} nodes are there after {}; start a launcher on the others, or lower --nnodes", num_ready,
                                limits_.min_nodes, format_duration(limits_.join_timeout)),
                    true);
    }
    return to_all({.text = fmt::format("{} of at least {} nodes are there", num_ready, limits_.min_nodes)});
  }
  if (last_call_) return {};
  last_call_ = now + limits_.last_call_timeout;
  return to_all({.text = fmt::format("{} of {} to {} nodes are there; waiting up to {} for more", num_ready, limits_.min_nodes,
                                     limits_.max_nodes, format_duration(limits_.last_call_timeout))});
}

Membership::Orders Membership::start() {
  state_ = State::kRunning;
  failure_is_counted_ = false;
  last_call_.reset();
  Orders orders;
  for (auto& [node, member] : members_) {
    member.is_ready = false;
    orders.push_back({.kind = Order::Kind::kStart,
                      .node = node,
                      .attempt = num_attempts_,
                      .group_rank = static_cast<int>(orders.size()),
                      .num_nodes = static_cast<int>(members_.size()),
                      .port = members_.at(0).join.port});
  }
  ++num_attempts_;
  return orders;
}

Membership::Orders Membership::finish(int exit_code, const std::string& reason, bool is_error) {
  state_ = State::kOver;
  farewell_ = {.kind = Order::Kind::kFinish, .text = reason, .exit_code = exit_code, .is_error = is_error};
  return to_all(farewell_);
}

Membership::Orders Membership::to_all(const Order& order) const {
  Orders orders;
  for (const auto& [node, member] : members_) {
    orders.push_back(order);
    orders.back().node = node;
  }
  return orders;
}

}  // namespace trainer::launch
