#pragma once
// A group of processes and what they do together, over c10d's backends. Every function but rank(), size() and abort() is collective:
// each rank of the group calls it, in the same order, with tensors of the same shape and type, on the CPU or on the group's device. Results
// are there (on a GPU: ordered on the current stream) when the function returns. A lost peer or a time-out is a PeerError.

#include <torch/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "distributed/activity.h"

namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace trainer::distributed {

class SharedMemoryGroup;

enum class Reduction { kSum, kMin, kMax };

class ProcessGroup {
 public:
  // A group of this process alone: its collectives give back what they are given, without sockets.
  ProcessGroup();
  // `group`: with a backend for the tensors' device. `ranks`: of the members among all processes, ascending. `group` has backends for the
  // CPU and the run's device, whose calls wait for `timeout`. `activity` hears when others are waited for; null: nobody does.
  ProcessGroup(c10::intrusive_ptr<c10d::ProcessGroup> group, std::vector<int> ranks, std::chrono::milliseconds timeout,
               std::shared_ptr<Activity> activity = nullptr);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }

  // In place, over a contiguous tensor; every rank ends with the same bits.
  void all_reduce(const torch::Tensor& tensor, Reduction reduction = Reduction::kSum) const;
  // Sums in place of small contiguous CPU tensors, added in the order of the ranks: the same digits wherever the ranks run. Each rank
  // gets the tensors of all.
  void sum_in_rank_order(std::span<const torch::Tensor> tensors) const;
  // In place, from the rank `source` of this group.
  void broadcast(const torch::Tensor& tensor, int source = 0) const;
  // [size, …]: every rank's tensor, by rank.
  torch::Tensor all_gather(const torch::Tensor& tensor) const;
  // This rank's part of `parts` [size, …], which `source` alone looks at; written to `part`, whose shape all know.
  void scatter(const torch::Tensor& parts, const torch::Tensor& part, int source = 0) const;
  // Bytes of any length, by rank.
  std::vector<std::string> all_gather_bytes(const std::string& bytes) const;
  std::string broadcast_bytes(const std::string& bytes, int source = 0) const;
  void barrier() const;

  // From now on what sum_in_rank_order and all_gather are given on the CPU, up to `num_bytes` of each rank (every tensor rounded up to
  // 64), goes through memory that the ranks share, where they all run on one host.
  void share_memory(int64_t num_bytes);
  bool shares_memory() const { return exchange_ != nullptr; }

  // Ends what is under way, here and soon in the other ranks, with an error. For a rank that has failed.
  void abort() const;
  const std::shared_ptr<Activity>& activity() const { return activity_; }
  // For c10d's own parts; null in a group of one without sockets.
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d_group() const { return group_; }

 private:
  // What `act` throws becomes a PeerError that says what was done by whom.
  void name_errors(const char* what, const std::function<void()>& act) const;
  void run(const char* what, const std::function<c10::intrusive_ptr<c10d::Work>()>& start) const;
  bool has_room_for(std::span<const torch::Tensor> tensors) const;

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::vector<int> ranks_;
  std::chrono::milliseconds timeout_{};
  std::shared_ptr<Activity> activity_;
  int rank_ = 0;
  std::unique_ptr<SharedMemoryGroup> exchange_;
};

}  // namespace trainer::distributed
