#include "device/cpu_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace trainer::device {
namespace {

constexpr size_t kTensorAlignment = 64;

// Before the aligned memory lies the address that malloc has returned. malloc aligns to at least 16 bytes, so there is room for it.
void*& malloc_address(void* data) { return static_cast<void**>(data)[-1]; }

void free_tensor(void* data) {
  if (data == nullptr) return;
  c10::profiledCPUMemoryReporter().Delete(data);
  std::free(malloc_address(data));
}

// The end of the heap's last whole page.
uintptr_t heap_end() {
  static const auto page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return reinterpret_cast<uintptr_t>(sbrk(0)) / page_size * page_size;
}

class MallocAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t num_bytes) override {
    if (num_bytes == 0) return {nullptr, nullptr, &free_tensor, c10::kCPU};
    char* const address = num_bytes < SIZE_MAX - kTensorAlignment ? static_cast<char*>(std::malloc(num_bytes + kTensorAlignment)) : nullptr;
    // Throws.
    if (address == nullptr) return c10::GetDefaultCPUAllocator()->allocate(num_bytes);
    ask_for_huge_pages(reinterpret_cast<uintptr_t>(address) + num_bytes);
    void* const data = address + kTensorAlignment - reinterpret_cast<uintptr_t>(address) % kTensorAlignment;
    malloc_address(data) = address;
    c10::profiledCPUMemoryReporter().New(data, num_bytes);
    return {data, data, &free_tensor, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_tensor; }
  void copy_data(void* to, const void* from, size_t num_bytes) const override { default_copy_data(to, from, num_bytes); }

 private:
  // Asks the system for huge pages for what the heap has grown by, if a new block, which ends at `block_end`, lies there.
  void ask_for_huge_pages(uintptr_t block_end) {
    auto begin = asked_until_.load(std::memory_order_relaxed);
    if (block_end <= begin) return;
    const auto end = heap_end();
    // Blocks of other threads may lie elsewhere.
    if (block_end > end || !asked_until_.compare_exchange_strong(begin, end)) return;
    // Without huge pages it is only slower.
    static_cast<void>(madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE));
  }

  std::atomic<uintptr_t> asked_until_ = heap_end();
};

}  // namespace

void allocate_tensors_by_malloc() {
  static MallocAllocator allocator;
  // In the place of the default one, which has this priority.
  c10::SetCPUAllocator(&allocator, /*priority=*/0);
}

}  // namespace trainer::device
