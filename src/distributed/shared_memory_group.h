#pragma once
// Memory that the ranks of one host share, for tensors so small that sockets and the threads behind them would be most of what a sum costs.

#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>

namespace trainer::distributed {

class ProcessGroup;

// part(0) + part(1) + … into `total`, in this order, so that the digits are the same whichever way the parts came. With one part, which
// is in `total` already, nothing is done.
void add_in_rank_order(torch::Tensor total, int size, const std::function<torch::Tensor(int rank)>& part);

class SharedMemoryGroup {
 public:
  // Where each tensor begins: a line of the processor's cache.
  static constexpr int64_t kAlignment = 64;

  // Collective. Room for `num_bytes` of each rank; `timeout` is for each wait. Null on every rank when any of them does not reach the
  // memory: on another host, in a container that does not see the processes of the others, or where there is none left.
  static std::unique_ptr<SharedMemoryGroup> make(const ProcessGroup& group, int64_t num_bytes, std::chrono::milliseconds timeout);
  ~SharedMemoryGroup();
  SharedMemoryGroup(const SharedMemoryGroup&) = delete;
  SharedMemoryGroup& operator=(const SharedMemoryGroup&) = delete;

  bool has_room_for(std::span<const torch::Tensor> tensors) const;

  // These two are collective. Tensors are on the CPU, contiguous, and have the same shapes and types on every rank. They throw
  // std::runtime_error when a rank has left or does not come in time.
  // The sums over the ranks, in place, added in the order of the ranks.
  void sum(std::span<const torch::Tensor> tensors);
  // Every rank's tensor, by rank, into `all` [size, …].
  void all_gather(const torch::Tensor& tensor, const torch::Tensor& all);

  // For the others this rank has left from now on; a call that waits on another thread fails.
  void leave();

 private:
  class Mapping;
  struct Progress;

  SharedMemoryGroup(std::unique_ptr<Mapping> mapping, int rank, int size, int64_t room, std::chrono::milliseconds timeout);
  Progress& progress(int rank) const;
  // What a rank has written: a tensor like `like` at `offset`.
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
