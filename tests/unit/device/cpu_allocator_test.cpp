#include <gmock/gmock.h>
#include <malloc.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "device/libtorch_settings.h"
#include "device/placement.h"
#include "trainer/torch.h"

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
  // Imitates a training step: the values of the layers are kept, then released in reverse order while gradients of the same sizes are
  // allocated and released.
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

// The flags of the mapping that contains `address`, from /proc/self/smaps; empty if there is none.
std::string mapping_flags(uintptr_t address) {
  std::ifstream maps("/proc/self/smaps");
  bool is_inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) is_inside = begin <= address && address < end;
    if (is_inside && line.starts_with("VmFlags:")) return line;
  }
  return "";
}

TEST(CpuAllocator, AsksForHugePages) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "this system has no huge pages";
  configure_cpu_allocator();
  for (const int64_t size : {1 << 16, 1 << 24, 1 << 26}) {
    const auto tensor = torch::empty({size}, torch::kUInt8);
    const auto address = reinterpret_cast<uintptr_t>(tensor.data_ptr());
    if (address > reinterpret_cast<uintptr_t>(sbrk(0)))
      GTEST_SKIP() << "the memory is not in the main heap, because of a sanitizer or an earlier failed allocation";
    EXPECT_THAT(mapping_flags(address + static_cast<uintptr_t>(size) - 1), testing::HasSubstr(" hg")) << size;
  }
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
