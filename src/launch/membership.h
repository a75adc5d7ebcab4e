#pragma once
// Which hosts take part in each attempt of an elastic run (--nnodes MIN:MAX). Pure logic: the caller passes in what the launchers report
// and the time, and sends the orders that come back.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainer::launch {

// A launcher whose processes do not run is ready for the next attempt. Node: --node-rank of its host.
struct Join {
  int node = 0;
  int min_nodes = 0, max_nodes = 0;  // of its --nnodes
  std::string host = {};
  int64_t process_id = 0;
  int num_processes = 0;  // that it will start
  int port = 0;           // of node 0: where rank 0 can listen in the next attempt
};

// All processes of a launcher have ended, and it is ready for the next attempt.
struct Ended {
  int exit_code = 0;  // Outcome::exit_code
  bool was_asked_to_stop = false;
  int port = 0;  // as in Join
};

// What a launcher has to do.
struct Order {
  enum class Kind {
    kWait,    // nothing yet; `text` says for whom
    kStart,   // start the processes
    kStop,    // request the processes to stop: they save a checkpoint
    kEnd,     // end the processes, after a moment in which they report the failure themselves
    kKill,    // kill the processes, which wait for a host that is lost
    kFinish,  // there is no further attempt: let the processes end by themselves, or exit with `exit_code` if none runs
    kRetry,   // join again later, because another launcher has the same node number
  };
  Kind kind = Kind::kWait;
  int node = 0;           // the addressee
  std::string text = {};  // for the user; may be empty
  int attempt = 0;        // of kStart: from 0
  int group_rank = 0;     // of kStart: the addressee's place among the hosts of this attempt
  int num_nodes = 0;      // of kStart
  int port = 0;           // of kStart: where rank 0 listens, on node 0
  int exit_code = 0;      // of kFinish
  bool is_error = false;  // of kFinish: `text` is the reason for a failure
  bool operator==(const Order&) const = default;
};

struct MembershipLimits {
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;                        // after failures and losses; joins do not count
  std::chrono::seconds last_call_timeout{30};  // how long at least min_nodes wait for further ones
  std::chrono::seconds join_timeout{600};      // how long fewer than min_nodes wait
};

class Membership {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Orders = std::vector<Order>;

  Membership(const MembershipLimits& limits, Time now) : limits_(limits), meeting_since_(now) {}

  // A launcher that is not a member yet. One of the orders is for it; kRetry or kFinish means that it has not become a member.
  Orders join(const Join& newcomer, Time now);
  // Of members only.
  Orders end(int node, const Ended& ended, Time now);
  Orders lose(int node, Time now);
  // To be called at deadline().
  Orders pass(Time now);
  // Empty: nothing happens by itself.
  std::optional<Time> deadline() const;

 private:
  enum class State {
    kMeeting,  // until enough members are ready
    kRunning,
    kEnding,  // until all members are ready again
    kOver,
  };
  struct Member {
    Join join;
    bool is_ready = true;
  };

  std::string refusal(const Join& newcomer) const;
  Orders meet(Time now);
  Orders start();
  Orders restart(const std::string& reason, Order::Kind kind, Time now);
  Orders fail(const std::string& reason, Order::Kind kind, int exit_code, Time now);
  Orders finish(int exit_code, const std::string& reason, bool is_error);
  Orders to_all(const Order& order) const;
  bool all_are_ready() const;
  std::string name(const Member& member) const;

  const MembershipLimits limits_;
  State state_ = State::kMeeting;
  std::map<int, Member> members_;  // by node
  int num_attempts_ = 0;
  int num_failures_ = 0;
  bool failure_is_counted_ = false;  // of the attempt that is ending
  Time meeting_since_;
  std::optional<Time> last_call_;  // when the wait for further members ends
  Order farewell_;                 // to those who join after the end
};

// Whether processes that ended so would fail again, or have done what they were to do.
bool is_final(int exit_code);

}  // namespace trainer::launch
