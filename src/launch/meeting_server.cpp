#include "launch/meeting_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "launch/membership_messages.h"

namespace trainer::launch {
namespace {

using Clock = std::chrono::steady_clock;

// A connection that has not joined by then is closed.
constexpr std::chrono::seconds kJoinLimit{10};
constexpr std::chrono::seconds kCloseLimit{2};
// Connections that have not joined do not take the places of launchers.
constexpr size_t kMostStrangers = 64;

}  // namespace

MeetingServer::MeetingServer(Descriptor socket, const MembershipLimits& limits, const KeepAlive& keep_alive)
    : keep_alive_(keep_alive), socket_(std::move(socket)), wake_up_(eventfd(0, EFD_CLOEXEC)), membership_(limits, Clock::now()) {
  if (listen(socket_.number(), SOMAXCONN) != 0) {
    throw PeerError(fmt::format("cannot listen on port {}: {}; choose another --master-port on all hosts", port_of(socket_),
                                std::generic_category().message(errno)));
  }
  thread_ = std::thread([this] { serve(); });
}

MeetingServer::~MeetingServer() {
  eventfd_write(wake_up_.number(), 1);
  thread_.join();
}

void MeetingServer::serve() {
  while (!closes_at_ || (!guests_.empty() && Clock::now() < *closes_at_)) {
    std::vector<pollfd> wanted = {{socket_.number(), POLLIN, 0}};
    if (!closes_at_) wanted.push_back({wake_up_.number(), POLLIN, 0});
    for (const auto& guest : guests_) wanted.push_back({guest.socket.descriptor(), POLLIN, 0});
    poll(wanted.data(), wanted.size(), wait_time());
    if (wanted[0].revents != 0) accept_guest();
    for (auto& guest : guests_) read_lines(guest);
    if (const auto deadline = membership_.deadline(); deadline && Clock::now() >= *deadline) deliver(membership_.pass(Clock::now()));
    drop_lost_guests();
    if (!closes_at_ && wanted[1].revents != 0) {
      closes_at_ = Clock::now() + kCloseLimit;
      for (auto& guest : guests_) guest.socket.end();
    }
  }
}

// In milliseconds; -1: without limit.
int MeetingServer::wait_time() const {
  auto until = membership_.deadline();
  const auto take = [&](Time time) { until = until ? std::min(*until, time) : time; };
  if (closes_at_) take(*closes_at_);
  for (const auto& guest : guests_) {
    if (!guest.node) take(guest.since + kJoinLimit);
  }
  if (!until) return -1;
  const auto remaining = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(remaining, 0, std::numeric_limits<int>::max()));
}

void MeetingServer::accept_guest() {
  Descriptor socket(accept4(socket_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const auto num_strangers = std::ranges::count_if(guests_, [](const Guest& guest) { return !guest.node; });
  if (socket.number() < 0 || closes_at_ || static_cast<size_t>(num_strangers) >= kMostStrangers) return;
  guests_.push_back({LineSocket(std::move(socket), keep_alive_), Clock::now()});
}

void MeetingServer::read_lines(Guest& guest) {
  guest.socket.receive();
  while (const auto line = guest.socket.next_line()) {
    if (!guest.node) {
      const auto newcomer = parse_join(*line);
      if (!newcomer) return guest.socket.close();
      join(guest, *newcomer);
    } else {
      const auto ended = parse_ended(*line);
      if (!ended) return guest.socket.close();
      deliver(membership_.end(*guest.node, *ended, Clock::now()));
    }
  }
}

void MeetingServer::join(Guest& guest, const Join& newcomer) {
  const auto orders = membership_.join(newcomer, Clock::now());
  const bool is_refused = std::ranges::any_of(orders, [&](const Order& order) {
    return order.node == newcomer.node && (order.kind == Order::Kind::kRetry || order.kind == Order::Kind::kFinish);
  });
  if (!is_refused) {
    guest.node = newcomer.node;
    return deliver(orders);
  }
  // The member with its number, if there is one, is another launcher.
  for (const auto& order : orders) guest.socket.send(format_order(order));
}

void MeetingServer::deliver(const Membership::Orders& orders) {
  for (const auto& order : orders) {
    const auto addressee = std::ranges::find_if(guests_, [&](const Guest& guest) { return guest.node == order.node; });
    if (addressee != guests_.end()) addressee->socket.send(format_order(order));
  }
}

void MeetingServer::drop_lost_guests() {
  const auto is_lost = [](const Guest& guest) {
    return guest.socket.descriptor() < 0 || (!guest.node && Clock::now() >= guest.since + kJoinLimit);
  };
  // Orders to the others may show that these are lost too.
  for (auto lost = std::ranges::find_if(guests_, is_lost); lost != guests_.end(); lost = std::ranges::find_if(guests_, is_lost)) {
    const auto node = lost->node;
    guests_.erase(lost);
    if (node) deliver(membership_.lose(*node, Clock::now()));
  }
}

}  // namespace trainer::launch
