#pragma once
// Finds the rank that failed first. Each rank tells the others, through the store, that it lives and what it does; when one of them
// fails, ends, stops answering or hangs, all others name the same rank and what it was doing, whichever rank they happened to talk to.

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "distributed/activity.h"
#include "distributed/failure.h"

namespace c10d {
class Store;
}

namespace trainer::distributed {

struct HealthOptions {
  int rank = 0;
  std::vector<std::string> processes = {};  // "process 31 on host-a", by rank
  bool first_serves_store = true;           // so that the store ends with rank 0
  std::chrono::milliseconds hang_limit{std::chrono::minutes(5)};
};

class Health {
 public:
  // Not collective, but every rank makes one. `store`: shared by all ranks; this takes a connection of its own. `on_failure` is called
  // once at most, on another thread, when the run cannot go on and this rank has not asked first_failure() itself: it is to end.
  Health(c10d::Store& store, std::shared_ptr<const Activity> activity, HealthOptions options,
         std::function<void(const Failure&)> on_failure);
  ~Health();
  Health(const Health&) = delete;
  Health& operator=(const Health&) = delete;

  // This rank has failed by itself: tells the others, and waits until they know.
  void report();
  // Another rank has ended as `detail` says ("was killed by signal 9 (Killed)").
  void report_ended(int rank, const std::string& detail);
  // This rank has lost another one: which has failed first. Takes some seconds where nobody has said anything; empty when all of them
  // answer.
  std::optional<Failure> first_failure();
  // This rank ends in order: no failure is looked for from now on.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    ActivityState state;
    uint64_t num_beats = 0;  // 0: none seen yet
    Clock::time_point last_beat;
    Clock::time_point last_change;
  };

  // On a thread that may be held up by the store: tells and hears.
  void talk();
  void exchange_beats();
  void settle_failure();
  // On a thread that nothing holds up.
  void watch();
  std::optional<Failure> judge(Clock::time_point now) const;
  Failure describe(Failure::Kind kind, int rank, Clock::duration duration = {}) const;
  void accuse(const Failure& failure);
  void wait_until_known(std::unique_lock<std::mutex>& lock, Clock::duration patience);

  const HealthOptions options_;
  const std::chrono::milliseconds interval_;
  const std::shared_ptr<const Activity> activity_;
  const std::function<void(const Failure&)> on_failure_;
  c10::intrusive_ptr<c10d::Store> store_;  // of talk() alone

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Peer> peers_;
  Clock::time_point last_answer_;      // of the store
  std::optional<Failure> accusation_;  // what this rank believes
  Clock::time_point accused_at_;
  std::optional<Failure> failure_;  // what all ranks say
  bool all_know_ = false;
  bool is_asked_ = false;
  bool is_finished_ = false;

  std::thread talker_;
  std::thread watcher_;
};

}  // namespace trainer::distributed
