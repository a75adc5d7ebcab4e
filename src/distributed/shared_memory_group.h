#pragma once
// Collectives over shared memory, for tensors so small that sockets and their threads would be most of the cost of a sum.

#include <torch/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>

#include "distributed/shared_memory.h"

namespace trainer::distributed {

// Writes part(0) + part(1) + … to `total`, added in this order, so that the bits do not depend on how the parts were received. With one
// part, which is already in `total`, does nothing.
void add_in_order(torch::Tensor total, int size, const std::function<torch::Tensor(int index)>& part);

class SharedMemoryGroup {
 public:
  // Collective; null as SharedMemory::make.
  static std::unique_ptr<SharedMemoryGroup> make(const ProcessGroup& group, int64_t num_bytes, std::chrono::milliseconds timeout);

  bool has_room_for(std::span<const torch::Tensor> tensors) const;

  // The next two are collective. Tensors are on the CPU, contiguous, and have the same shapes and types on every rank. They throw
  // std::runtime_error when a rank has left or does not take part in time.
  // Sums over the ranks, in place, added in rank order.
  void sum(std::span<const torch::Tensor> tensors);
  // Every rank's tensor, by rank, into `all` [size, …].
  void all_gather(const torch::Tensor& tensor, const torch::Tensor& all);

  void leave() { memory_->leave(); }

 private:
  explicit SharedMemoryGroup(std::unique_ptr<SharedMemory> memory) : memory_(std::move(memory)) {}
  // The tensor that a rank has written at `offset`, with the shape and type of `like`.
  torch::Tensor slot(int rank, int64_t offset, const torch::Tensor& like) const;
  void write(std::span<const torch::Tensor> tensors);
  void end_reading() { memory_->set(SharedMemory::kRead, round_); }

  std::unique_ptr<SharedMemory> memory_;
  uint32_t round_ = 0;  // number of calls
};

}  // namespace trainer::distributed
