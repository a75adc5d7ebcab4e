#pragma once
// Collectives over shared memory for ranks on one host, without the cost of sockets and their threads.

#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace trainer::distributed {

class ProcessGroup;

// Memory that the ranks of one host share: one part per rank, and counters with which the ranks wait for each other.
class SharedMemory {
 public:
  // Alignment of each rank's part and of the tensors in it, in bytes: a cache line.
  static constexpr int64_t kAlignment = 64;
  static constexpr int64_t align(int64_t num_bytes) { return (num_bytes + kAlignment - 1) / kAlignment * kAlignment; }

  // Each rank advances its own counters and reads those of all ranks. Counters wrap around.
  enum Counter { kWritten, kSummed, kRead, kNumCounters };

  // Collective. Allocates `num_bytes` for each rank; `timeout` limits each wait. Returns null on every rank if any rank cannot map the
  // memory, for example because it is on another host or in another container.
  static std::unique_ptr<SharedMemory> make(const ProcessGroup& group, int64_t num_bytes, std::chrono::milliseconds timeout);
  ~SharedMemory();

  int rank() const { return rank_; }
  int size() const { return size_; }
  int64_t num_bytes() const { return num_bytes_; }  // per rank
  char* part_of(int rank) const;

  // Sets this rank's counter. A rank that sees the new value also sees everything that this rank wrote before.
  void set(Counter counter, uint32_t value);
  bool have_all_reached(Counter counter, uint32_t value) const;
  // Throws std::runtime_error if a rank has left or the timeout is exceeded.
  void wait_for_all(Counter counter, uint32_t value) const;

  // From now on, waits for this rank fail, and so do waits on other threads of this rank.
  void leave();

 private:
  class Mapping;
  struct Counters;

  SharedMemory(std::unique_ptr<Mapping> mapping, int rank, int size, int64_t num_bytes, std::chrono::milliseconds timeout);
  std::atomic<uint32_t>& counter_of(int rank, Counter counter) const;
  bool has_reached(int rank, Counter counter, uint32_t value) const;
  void wait_for(int rank, Counter counter, uint32_t value) const;

  std::unique_ptr<Mapping> mapping_;
  int rank_;
  int size_;
  int64_t num_bytes_;
  std::chrono::milliseconds timeout_;
  std::atomic<bool> has_left_ = false;
};

// Writes part(0) + part(1) + …, added in this order, to `total`. A single part must already be there.
void add_in_order(torch::Tensor total, int size, const std::function<torch::Tensor(int index)>& part);

// Collective; returns null like SharedMemory::make. `Sums`: SharedMemoryGroup or SharedMemorySum.
template <class Sums>
std::unique_ptr<Sums> make_in_shared_memory(const ProcessGroup& group, int64_t num_bytes, std::chrono::milliseconds timeout) {
  auto memory = SharedMemory::make(group, num_bytes, timeout);
  return memory ? std::make_unique<Sums>(std::move(memory)) : nullptr;
}

class SharedMemoryGroup {
 public:
  explicit SharedMemoryGroup(std::unique_ptr<SharedMemory> memory) : memory_(std::move(memory)) {}

  bool has_room_for(std::span<const torch::Tensor> tensors) const;

  // The next two functions are collective, for contiguous CPU tensors with the same shapes and types on every rank. They throw
  // std::runtime_error if a rank has left or the timeout is exceeded.

  // Sums the tensors over the ranks in place, in rank order.
  void sum(std::span<const torch::Tensor> tensors);
  // Writes the tensors of all ranks to `all` [size, …], in rank order.
  void all_gather(const torch::Tensor& tensor, const torch::Tensor& all);

  void leave() { memory_->leave(); }

 private:
  // The tensor that a rank has written at `offset`, with the shape and type of `like`.
  torch::Tensor slot(int rank, int64_t offset, const torch::Tensor& like) const;
  void write(std::span<const torch::Tensor> tensors);
  void end_reading() { memory_->set(SharedMemory::kRead, round_); }

  std::unique_ptr<SharedMemory> memory_;
  uint32_t round_ = 0;  // number of calls of sum() and all_gather()
};

// Sums large tensors over the ranks of one host while the caller computes. begin() and finish() perform a reduce-scatter and an all-gather
// on the calling thread, because extra threads would need a core. The shards and the order of additions are those of gloo's ring
// (gloo/allreduce.cc), so that the bits do not depend on whether the ranks share a host.
class SharedMemorySum {
 public:
  // `memory` must have room for the tensors between two calls of finish(), each rounded up to 64 bytes.
  explicit SharedMemorySum(std::unique_ptr<SharedMemory> memory) : memory_(std::move(memory)) {}

  // The next two functions are collective, for contiguous CPU tensors in the same order. They throw std::runtime_error like those above.

  // Begins to sum `tensor` in place. Waits only for ranks that are still reading tensors from before the last finish().
  void begin(const torch::Tensor& tensor);
  void finish();

  void leave() { memory_->leave(); }

 private:
  struct Pending {
    torch::Tensor tensor;  // flat
    int64_t offset;        // in bytes, in each rank's part of the memory
  };

  // The shard of the tensor that `rank` sums.
  torch::Tensor shard_for(int rank, const torch::Tensor& tensor) const;
  // The shard that `rank` sums, as `writer` stores it in its shared memory.
  torch::Tensor shared(int writer, int rank, const Pending& pending) const;
  // Sums and reads, in order, the shards that are ready, or all.
  void advance(bool waits);
  bool is_ready(SharedMemory::Counter counter, size_t index, bool waits) const;
  void add_own_share(const Pending& pending);
  void read_other_shares(const Pending& pending);

  std::unique_ptr<SharedMemory> memory_;
  std::vector<Pending> pending_;  // since the last finish()
  size_t num_summed_ = 0;         // of pending_
  size_t num_read_ = 0;
  int64_t end_ = 0;      // end offset of the memory in use
  uint32_t before_ = 0;  // number of tensors up to the last finish()
};

}  // namespace trainer::distributed
