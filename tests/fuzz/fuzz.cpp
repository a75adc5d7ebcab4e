#include "tests/fuzz/fuzz.h"

#include <sanitizer/allocator_interface.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "checkpoint/refusal.h"
#include "trainer/error.h"

namespace trainer::fuzz {
namespace {

// Limit of the memory that does not depend on the file: for messages and exceptions, and LibTorch's own.
constexpr size_t kBesideTheFile = size_t{16} << 10;

// Counts the memory of this thread, in bytes, while a reader runs.
thread_local bool is_counting = false;
thread_local int64_t num_live = 0;
thread_local int64_t max_live = 0;

void on_malloc(const volatile void*, size_t size) {
  if (!is_counting) return;
  num_live += static_cast<int64_t>(size);
  max_live = std::max(max_live, num_live);
}

void on_free(const volatile void* address) {
  if (!is_counting || address == nullptr) return;
  num_live -= static_cast<int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(address)));
}

// Reads the first and the last byte of each tensor, so that the address sanitizer checks them.
unsigned touch(const torch::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  const auto* first = static_cast<const volatile uint8_t*>(tensor.const_data_ptr());
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  return first[0] + first[(last + 1) * static_cast<int64_t>(tensor.element_size()) - 1];
}

}  // namespace

void check(std::span<const uint8_t> file, const Reader& read) {
  [[maybe_unused]] static const int installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
  num_live = 0;
  max_live = 0;
  is_counting = true;
  try {
    const auto tree = read(file);
    is_counting = false;
    for (const auto& tensor : state::tensors_of(tree)) touch(tensor);
  } catch (const CheckpointError&) {
    is_counting = false;
  }
  if (static_cast<size_t>(max_live) > checkpoint::max_allocation(file.size()) + kBesideTheFile) {
    std::fprintf(stderr, "reading %zu bytes took %lld bytes of memory\n", file.size(), static_cast<long long>(max_live));
    std::abort();
  }
}

}  // namespace trainer::fuzz
