#pragma once
// Sums of large tensors over the ranks of one host, in shared memory, while the caller computes: a reduce-scatter and an all-gather that
// begin() and finish() work on, without threads of their own, which would need a core. Each rank adds one part of every tensor. The parts
// and the order of the additions are those of gloo's ring (gloo/allreduce.cc), so that the bits do not depend on whether ranks share a
// host.

#include <torch/types.h>

#include <chrono>
#include <memory>
#include <vector>

#include "distributed/shared_memory_group.h"

namespace trainer::distributed {

class SharedMemorySum {
 public:
  // Collective; null as SharedMemory::make. `num_bytes`: of all tensors between two calls of finish(), each rounded up to 64 bytes.
  static std::unique_ptr<SharedMemorySum> make(const ProcessGroup& group, int64_t num_bytes, std::chrono::milliseconds timeout);

  // The next two are collective, with the same tensors in the same order on all ranks: on the CPU and contiguous. They throw
  // std::runtime_error when a rank has left or does not take part in time.
  // Begins to sum `tensor`, in place. Waits only for ranks that are still reading the tensors before the last finish().
  void begin(const torch::Tensor& tensor);
  // Waits until all tensors are summed.
  void finish();

  void leave() { memory_->leave(); }

 private:
  struct Pending {
    torch::Tensor tensor;  // flat
    int64_t offset;        // in bytes, in each rank's part of the memory
  };

  explicit SharedMemorySum(std::unique_ptr<SharedMemory> memory) : memory_(std::move(memory)) {}
  // The part of the tensor that `rank` adds.
  torch::Tensor share_of(int rank, const torch::Tensor& tensor) const;
  // The memory of `writer` for that part.
  torch::Tensor shared(int writer, int rank, const Pending& pending) const;
  // Adds and reads what other ranks have made ready, in order; with `waits`, everything.
  void advance(bool waits);
  bool is_ready(SharedMemory::Counter counter, size_t index, bool waits) const;
  void add_own_share(const Pending& pending);
  void read_other_shares(const Pending& pending);

  std::unique_ptr<SharedMemory> memory_;
  std::vector<Pending> pending_;  // since the last finish()
  size_t num_summed_ = 0;         // of those
  size_t num_read_ = 0;
  int64_t end_ = 0;      // of the memory in use
  uint32_t before_ = 0;  // number of tensors up to the last finish()
};

}  // namespace trainer::distributed
