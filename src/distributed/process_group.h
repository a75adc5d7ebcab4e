#pragma once
// A group of processes and its collectives, over c10d's backends. Every function but rank(), size() and abort() is collective: each rank
// of the group calls it, in the same order, with tensors of the same shape and type, on the CPU or on the group's device. Results are
// ready (on a GPU: ordered on the current stream) when the function returns. A lost peer or a time-out throws PeerError.

#include <torch/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "distributed/activity.h"

namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace trainer::distributed {

class SharedMemoryGroup;
class SharedMemorySum;

class ProcessGroup {
 public:
  // A group of only this process, without sockets: its collectives return their input.
  ProcessGroup();
  // `group` has backends for the CPU and the run's device, whose calls wait up to `timeout`. `ranks`: the members' world ranks, ascending.
  // `activity` is updated while this rank waits for others; may be null.
  ProcessGroup(c10::intrusive_ptr<c10d::ProcessGroup> group, std::vector<int> ranks, std::chrono::milliseconds timeout,
               std::shared_ptr<Activity> activity = nullptr);
  ~ProcessGroup();

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  // The members' world ranks, ascending.
  const std::vector<int>& ranks() const { return ranks_; }

  // In place, over a contiguous tensor; every rank ends with the same bits.
  void all_reduce(const torch::Tensor& tensor, c10d::ReduceOp::RedOpType reduction = c10d::ReduceOp::SUM) const;
  // Sums small contiguous CPU tensors in place, added in rank order: the same bits whatever hosts the ranks run on. Each rank receives
  // the tensors of all ranks.
  void sum_in_rank_order(std::span<const torch::Tensor> tensors) const;
  // In place, from rank `source` of this group.
  void broadcast(const torch::Tensor& tensor, int source = 0) const;
  // [size, …]: every rank's tensor, by rank.
  torch::Tensor all_gather(const torch::Tensor& tensor) const;
  // Writes this rank's part of `parts` [size, …] to `part`. Only `source` reads `parts`; `part` has the same shape on all ranks.
  void scatter(const torch::Tensor& parts, const torch::Tensor& part, int source = 0) const;
  // The same two for CPU tensors, but they return at once; the tensors must not be used before wait_for() has returned. In a group that has
  // sockets.
  c10::intrusive_ptr<c10d::Work> begin_broadcast(const torch::Tensor& tensor, int source = 0) const;
  c10::intrusive_ptr<c10d::Work> begin_scatter(const torch::Tensor& parts, const torch::Tensor& part, int source = 0) const;
  // Not collective.
  void wait_for(c10d::Work& work) const;
  // A copy in the host's memory. On a GPU this waits until the collectives before it have finished, as waiting for the other ranks.
  torch::Tensor to_host(const torch::Tensor& tensor) const;
  // Bytes of any length, by rank.
  std::vector<std::string> all_gather_bytes(const std::string& bytes) const;
  std::string broadcast_bytes(const std::string& bytes, int source = 0) const;
  void barrier() const;

  // From now on, if all ranks run on one host, sum_in_rank_order and all_gather use shared memory for CPU tensors of up to `num_bytes` in
  // total per rank (each tensor rounded up to 64 bytes).
  void share_memory(int64_t num_bytes);
  // The same for begin_sum and finish_sums, for tensors of up to `num_bytes` in total between two calls of finish_sums. Returns whether all
  // ranks run on one host; otherwise the two must not be called.
  bool share_memory_for_sums(int64_t num_bytes);
  bool shares_memory() const { return exchange_ || sums_; }

  // Begins to sum a contiguous CPU tensor in place, with the bits of all_reduce; the caller may compute something else before
  // finish_sums().
  void begin_sum(const torch::Tensor& tensor) const;
  void finish_sums() const;

  // Ends running collectives with an error, here and soon on the other ranks. For a rank that has failed.
  void abort() const;
  const std::shared_ptr<Activity>& activity() const { return activity_; }
  // For c10d's classes; null in a group of one without sockets.
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d_group() const { return group_; }

 private:
  // Turns an exception of `act` into a PeerError that names the operation and the rank.
  void with_peer_errors(const char* what, const std::function<void()>& act) const;
  void run(const char* what, const std::function<c10::intrusive_ptr<c10d::Work>()>& start) const;
  bool has_room_for(std::span<const torch::Tensor> tensors) const;

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::vector<int> ranks_;
  std::chrono::milliseconds timeout_{};
  std::shared_ptr<Activity> activity_;
  int rank_ = 0;
  std::unique_ptr<SharedMemoryGroup> exchange_;
  std::unique_ptr<SharedMemorySum> sums_;
};

}  // namespace trainer::distributed
