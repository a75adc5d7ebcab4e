#pragma once
// Finds the rank that failed first, no matter which connection broke first. All ranks but 0 write heartbeats to the store; rank 0 reads
// them and publishes a digest. All ranks report the same rank and what it was doing.

#include <c10/util/intrusive_ptr.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "distributed/activity.h"
#include "distributed/rendezvous.h"
#include "distributed/supervision/failure.h"
#include "distributed/supervision/heartbeats.h"

namespace c10d {
class Store;
}

namespace trainer::supervision {

struct FailureDetectorOptions {
  int rank = 0;
  std::vector<distributed::RankInfo> ranks = {};  // by rank
  bool rank0_serves_store = true;                 // the store ends with rank 0
  std::chrono::milliseconds hang_limit{std::chrono::minutes(5)};
};

class FailureDetector {
 public:
  // Every rank must construct one. The detector opens another connection to the `store`. `on_failure` is called at most once, on another
  // thread, if the run cannot continue and this rank has called neither first_failure() nor report_own_failure(); it must then end.
  FailureDetector(c10d::Store& store, std::shared_ptr<const distributed::Activity> activity, FailureDetectorOptions options,
                  std::function<void(const Failure&)> on_failure);
  ~FailureDetector();

  // Waits up to a few seconds until the report is in the store and, on rank 0, the others have read it.
  void report_own_failure();
  // `detail`: "was killed by signal 9 (Killed)".
  void report_ended(int rank, const std::string& detail);
  // This rank has waited for `duration` during the start-up for another rank, which still sends heartbeats.
  void report_late(int rank, std::chrono::milliseconds duration);
  // Call when this rank has lost its connection to another. Waits some seconds for a report; nullopt if all ranks still answer.
  std::optional<Failure> first_failure();
  // Call when this rank ends normally.
  void finish();

 private:
  // Runs on a thread that the store may block.
  void exchange_until_finished();
  void create_keys();
  void exchange_heartbeats();
  Digest publish_digest();
  Digest send_heartbeat();
  void read_failure(const std::vector<uint8_t>& value);
  void settle_failure();
  std::string last_seen_in(const Failure& failure);
  // Runs on a thread that nothing blocks.
  void diagnose_until_finished();
  // The functions below are called with the mutex locked.
  Failure describe(Failure::Kind kind, int rank, Clock::duration duration = {}) const;
  void suspect(const Failure& failure);
  void wait_until_known(std::unique_lock<std::mutex>& lock, Clock::duration timeout);

  const FailureDetectorOptions options_;
  const std::chrono::milliseconds interval_;  // between two heartbeats
  const DiagnosisLimits limits_;
  const std::shared_ptr<const distributed::Activity> activity_;
  const std::function<void(const Failure&)> on_failure_;

  // Used only by the thread that exchanges heartbeats.
  c10::intrusive_ptr<c10d::Store> store_;
  HeartbeatLog log_;               // used by rank 0
  std::vector<std::string> keys_;  // read in each exchange; the last one is the failure's
  uint64_t num_heartbeats_ = 0;
  std::optional<Failure> written_failure_;  // in the store
  bool has_confirmed_ = false;

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  Knowledge knowledge_;
  std::optional<Failure> suspected_;  // this rank's own diagnosis
  Clock::time_point suspected_at_;
  std::optional<Failure> failure_;  // the failure that all ranks report
  bool all_know_ = false;           // on rank 0, whether all other ranks have read failure_
  bool is_asked_ = false;           // this rank is ending already, so on_failure_ must not be called
  bool is_finished_ = false;

  std::thread exchanger_;
  std::thread diagnoser_;
};

}  // namespace trainer::supervision
