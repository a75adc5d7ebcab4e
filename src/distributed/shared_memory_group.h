#pragma once
// Memory that the ranks of one host share, for tensors so small that sockets and their threads would be most of the cost of a sum.

#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>

namespace trainer::distributed {

class ProcessGroup;

// Writes part(0) + part(1) + … to `total`, added in this order, so that the bits do not depend on how the parts were received. With one
// part, which is already in `total`, does nothing.
void add_in_rank_order(torch::Tensor total, int size, const std::function<torch::Tensor(int rank)>& part);

class SharedMemoryGroup {
 public:
  // Alignment of each tensor in bytes: a cache line.
  static constexpr int64_t kAlignment = 64;

  // Collective. Allocates `num_bytes` for each rank; `timeout` limits each wait. Returns null on every rank when any rank cannot map the
  // memory: on another host, in a container that does not see the other processes, or when no shared memory is left.
  static std::unique_ptr<SharedMemoryGroup> make(const ProcessGroup& group, int64_t num_bytes, std::chrono::milliseconds timeout);
  ~SharedMemoryGroup();

  bool has_room_for(std::span<const torch::Tensor> tensors) const;

  // The next two are collective. Tensors are on the CPU, contiguous, and have the same shapes and types on every rank. They throw
  // std::runtime_error when a rank has left or does not take part in time.
  // Sums over the ranks, in place, added in rank order.
  void sum(std::span<const torch::Tensor> tensors);
  // Every rank's tensor, by rank, into `all` [size, …].
  void all_gather(const torch::Tensor& tensor, const torch::Tensor& all);

  // Marks this rank as having left; calls that wait for it on other ranks fail, as does a call that waits on another thread of this rank.
  void leave();

 private:
  class Mapping;
  struct Progress;

  SharedMemoryGroup(std::unique_ptr<Mapping> mapping, int rank, int size, int64_t room, std::chrono::milliseconds timeout);
  Progress& progress(int rank) const;
  // The tensor that a rank has written at `offset`, with the shape and type of `like`.
  torch::Tensor slot(int rank, int64_t offset, const torch::Tensor& like) const;
  void write(std::span<const torch::Tensor> tensors);
  void end_reading();
  void wait_for(int rank, std::atomic<uint32_t> Progress::*counter, uint32_t round) const;

  std::unique_ptr<Mapping> mapping_;
  int rank_;
  int size_;
  int64_t room_;  // bytes of one rank
  std::chrono::milliseconds timeout_;
  uint32_t round_ = 0;
  std::atomic<bool> has_left_ = false;
};

}  // namespace trainer::distributed
