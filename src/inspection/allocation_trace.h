#pragma once
// Records how much tensor memory a piece of code allocates on the CPU, and predicts that for a larger batch.

#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace trainer::inspection {

// The allocations and releases of LibTorch's CPU allocator, in their order, in bytes; releases are negative.
struct Allocations {
  std::vector<int64_t> changes;
  size_t num_before_mark = 0;  // how many of them came before the mark

  // Bytes that are in use at the mark, and at most, beyond those before the trace.
  int64_t at_mark() const;
  int64_t peak() const;
  int64_t at_end() const;
};

// Records those of this thread while it lives. A single-threaded backward pass on the CPU runs on the thread that calls it.
class AllocationTrace {
 public:
  AllocationTrace();
  ~AllocationTrace();
  AllocationTrace(const AllocationTrace&) = delete;
  AllocationTrace& operator=(const AllocationTrace&) = delete;

  void mark();
  const Allocations& result() const;

 private:
  class Recorder;
  std::shared_ptr<Recorder> recorder_;
  c10::DebugInfoGuard guard_;
};

// The allocations of a batch of `size` samples, from those of two smaller ones: the same work allocates in the same order, and each
// size is a constant plus a multiple of the batch size. Only if the order differs, the peak and the value at the mark are computed so.
Allocations extrapolate(const Allocations& small, int64_t small_size, const Allocations& large, int64_t large_size, int64_t size);

}  // namespace trainer::inspection
