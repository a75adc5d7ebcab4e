#pragma once
// Steps that all ranks take together: those of the start-up, and the decision to stop.

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

// Why a rank cannot continue; empty text: no problem.
struct Problem {
  std::string text;
  int exit_code = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Problem, text, exit_code)

// Throws one Error when any rank has a problem: lists each problem once, with its rank unless that is rank 0 or all ranks have the same
// problem; the exit code is that of the first problem.
void throw_if_any(const std::vector<Problem>& problems);

// All ranks take each step of the start-up together, or fail together with the problem reported once; a rank that loses another one does
// not wait for the others. Uses the shared store, so it works before process groups exist.
class StartupBarrier {
 public:
  // For one process.
  StartupBarrier() = default;
  StartupBarrier(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, std::chrono::milliseconds timeout)
      : store_(std::move(store)), rank_(rank), world_size_(world_size), timeout_(timeout) {}

  // Collective: runs `work` on every rank. An Error on any rank is thrown on all ranks, with its text only on rank 0. A PeerError and
  // exceptions of other libraries pass through. Throws LateRank on a rank that has waited too long for another.
  void on_all_ranks(const std::function<void()>& work);
  // The same for `work` that makes something, which is returned.
  template <class Make>
  auto make_on_all_ranks(const Make& make) {
    std::optional<std::invoke_result_t<Make>> made;
    on_all_ranks([&] { made.emplace(make()); });
    return std::move(*made);
  }
  // As on_all_ranks(); returns the results of `work` of all ranks, by rank.
  std::vector<std::string> gather(const std::function<std::string()>& work);
  // Collective: runs `work` on rank 0 and returns its result on all ranks, or throws its Error as on_all_ranks() does.
  std::string on_rank0(const std::function<std::string()>& work);

 private:
  void wait_for_all(const std::function<std::string(int rank)>& key) const;

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_ = 0;
  int world_size_ = 1;
  std::chrono::milliseconds timeout_{0};
  int num_steps_ = 0;
};

// Lets all ranks stop at the same step when any of them is asked to. Exchanges the requests through shared memory if the group has it,
// because a backend's threads would cost more of a short step; otherwise asynchronously, so that no step waits for the others.
class StopConsensus {
 public:
  // `group`: of all ranks, used only here.
  explicit StopConsensus(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}

  // Collective, once a step: whether any rank passed `requested` in this call (without shared memory: in the previous call); the same
  // answer on all ranks. A group of one sees its own request immediately.
  bool any_requested(bool requested);
  // Collective: waits for the exchange that the last call started. Call before the group is shut down.
  void finish();

 private:
  std::shared_ptr<ProcessGroup> group_;
  torch::Tensor requests_;
  c10::intrusive_ptr<c10d::Work> pending_;
};

}  // namespace trainer::distributed
