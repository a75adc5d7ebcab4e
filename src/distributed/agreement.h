#pragma once
// Makes all ranks agree on whether a step of the start-up has succeeded, and on when to stop.

#include <torch/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "trainer/distributed.h"

namespace trainer::distributed {

// Why a rank cannot continue; an empty text means that there is no problem.
struct Problem {
  std::string text;
  int exit_code = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Problem, text, exit_code)

// If any rank has a problem, throws one Error that lists each problem once, with the rank unless it is rank 0 or all have the same problem,
// and with the exit code of the first one.
void throw_if_any(const std::vector<Problem>& problems);

// Makes all ranks complete each step of the start-up together, or fail together with each problem reported once.
class StartupBarrier {
 public:
  // For a run of one process.
  StartupBarrier() = default;
  // Over the ranks of a group.
  explicit StartupBarrier(std::shared_ptr<ProcessGroup> group)
      : group_(std::move(group)), rank_(group_->rank()), world_size_(group_->size()) {}
  // Over a store, which works before process groups exist.
  StartupBarrier(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, std::chrono::milliseconds timeout)
      : store_(std::move(store)), rank_(rank), world_size_(world_size), timeout_(timeout) {}

  // The functions below are collective. If `work` throws Error on any rank, all ranks throw AgreedError, with the text only on rank 0;
  // PeerError and exceptions of other libraries are not shared. Over a store, a rank that has waited too long for another throws LateRank.
  void on_all_ranks(const std::function<void()>& work);
  template <class Make>
  auto make_on_all_ranks(const Make& make) {
    std::optional<std::invoke_result_t<Make>> made;
    on_all_ranks([&] { made.emplace(make()); });
    return std::move(*made);
  }
  // Returns the results of all ranks, by rank.
  std::vector<std::string> gather(const std::function<std::string()>& work);
  // Runs `work` on rank 0 and returns its result on all ranks.
  std::string on_rank0(const std::function<std::string()>& work);

 private:
  std::vector<std::string> gather_over_store(const nlohmann::json& record);
  void wait_for_all(const std::function<std::string(int rank)>& key) const;

  std::shared_ptr<ProcessGroup> group_;
  c10::intrusive_ptr<c10d::Store> store_;
  int rank_ = 0;
  int world_size_ = 1;
  std::chrono::milliseconds timeout_{0};
  int num_steps_ = 0;
};

// Makes all ranks stop at the same step when any of them receives a stop request. Exchanges the requests through shared memory if the group
// has it, and otherwise asynchronously, so that no step waits for the other ranks.
class StopConsensus {
 public:
  // `group`: contains all ranks and is used by nothing else.
  explicit StopConsensus(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}

  // Collective, called once per step. Whether any rank has passed true: in this call if the group has no sockets or has shared memory, else
  // in an earlier call.
  bool any_requested(bool requested);
  // Collective: ends the exchange that the last any_requested() started. Call before the group is shut down.
  void finish();

 private:
  std::shared_ptr<ProcessGroup> group_;
  torch::Tensor requests_;
  c10::intrusive_ptr<c10d::Work> pending_;
};

}  // namespace trainer::distributed
