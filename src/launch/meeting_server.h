#pragma once
// The launcher of node 0 holds the meeting of all launchers of an elastic run.

#include <chrono>
#include <list>
#include <optional>
#include <thread>

#include "base/descriptor.h"
#include "launch/line_socket.h"
#include "launch/membership.h"

namespace trainer::launch {

// During its lifetime, talks to the launchers on a thread: they connect, join and receive orders. A launcher whose connection is lost is
// lost. What is not a launcher's message ends a connection.
class MeetingServer {
 public:
  // `socket` is bound. To be created during the lifetime of a SignalQueue, so that the thread receives no signals. Throws
  // PeerError when another program listens there.
  MeetingServer(Descriptor socket, const MembershipLimits& limits, const KeepAlive& keep_alive);
  // Gives the other launchers two seconds to receive their last order.
  ~MeetingServer();

 private:
  using Time = Membership::Time;
  struct Guest {
    LineSocket socket;
    Time since;
    std::optional<int> node = {};  // once it is a member
  };

  void serve();
  int wait_time() const;
  void accept_guest();
  void read_lines(Guest& guest);
  void join(Guest& guest, const Join& newcomer);
  void deliver(const Membership::Orders& orders);
  void drop_lost_guests();

  const KeepAlive keep_alive_;
  Descriptor socket_;
  Descriptor wake_up_;  // an eventfd; readable: the lifetime ends
  Membership membership_;
  std::list<Guest> guests_;
  std::optional<Time> closes_at_;
  std::thread thread_;
};

}  // namespace trainer::launch
