#include "device/cpu_allocator.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "device/placement.h"

namespace trainer::device {
namespace {

TEST(CpuAllocator, AlignsTensorsToCacheLines) {
  configure_cpu_allocator();
  for (const int64_t size : {1, 3, 1000, 1 << 20}) {
    const auto tensor = torch::arange(size, torch::kUInt8);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 64, 0U) << size;
    auto larger = tensor.clone();
    larger.resize_({2 * size});
    EXPECT_TRUE(torch::equal(larger.narrow(0, 0, size), tensor));
  }
  EXPECT_EQ(torch::empty({0}).data_ptr(), nullptr);
}

TEST(CpuAllocator, TheHeapHardlyGrowsBeyondWhatIsInUse) {
  configure_cpu_allocator();
  const auto heap_size = [] { return static_cast<int64_t>(mallinfo2().arena); };
  const int64_t before = heap_size();
  // As in a training step: the values of the layers are kept, then released in reverse order while gradients of the same sizes come and go.
  constexpr int64_t kBytes = 1 << 20;
  for (int step = 0; step < 10; ++step) {
    std::vector<torch::Tensor> kept;
    for (int64_t i = 0; i < 30; ++i) kept.push_back(torch::empty({kBytes << (i % 3)}, torch::kUInt8));
    auto gradient = torch::empty({kBytes}, torch::kUInt8);
    while (!kept.empty()) {
      gradient = torch::empty_like(kept.back());
      kept.pop_back();
    }
  }
  // 30 layers of 1, 2 and 4 MiB, and the gradients.
  EXPECT_LT(heap_size() - before, 90 * kBytes);
}

TEST(CpuAllocator, FailsWithTheErrorOfLibTorch) {
  configure_cpu_allocator();
  try {
    torch::empty({int64_t{1} << 55}, torch::kUInt8);
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("DefaultCPUAllocator"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace trainer::device
