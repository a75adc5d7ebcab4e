#include <gmock/gmock.h>

#include "commands/doctor/judge.h"
#include "tests/testing/finding.h"

namespace trainer::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

device::GpuReport::Gpu gpu(uint64_t free_gib) {
  return {.name = "H100",
          .pci_bus_id = "0000:3b:00.0",
          .capability_major = 9,
          .capability_minor = 0,
          .total_memory = uint64_t{80} << 30,
          .free_memory = free_gib << 30,
          .refusal = ""};
}

Gpus host_with(std::vector<device::GpuReport::Gpu> gpus) {
  return {.has_driver = true,
          .refusal = "",
          .report = {.driver_version = 12080, .runtime_version = 12060, .nccl_version = "2.26.2", .gpus = std::move(gpus)}};
}

TEST(JudgeGpus, Driver) {
  EXPECT_THAT(judge_driver({}), IsOk("no NVIDIA driver: training uses the CPU"));
  EXPECT_THAT(judge_driver({.has_driver = true, .refusal = "driver too old", .report = {}}),
              IsFailed("there is an NVIDIA driver, but this program cannot use it: driver too old", "update the driver"));
  EXPECT_THAT(judge_driver({.has_driver = true, .refusal = "", .report = {}}), IsWarning("no GPU is visible", "CUDA_VISIBLE_DEVICES"));
  EXPECT_THAT(judge_driver(host_with({gpu(79)})), IsOk("the driver supports CUDA 12.8; LibTorch uses CUDA 12.6 and NCCL 2.26.2; 1 GPU"));
}

TEST(JudgeGpus, EachGpu) {
  auto unsupported = gpu(79);
  unsupported.refusal = "no kernel image is available";
  EXPECT_THAT(judge_gpus(host_with({gpu(79), gpu(39), unsupported})),
              ElementsAre(IsOk("cuda:0 H100 (0000:3b:00.0), compute capability 9.0, 79.0 GiB of 80.0 GiB free"),
                          IsWarning("cuda:1 H100 (0000:3b:00.0), compute capability 9.0, 39.0 GiB of 80.0 GiB free", "nvidia-smi"),
                          IsFailed("cuda:2 H100 (0000:3b:00.0), compute capability 9.0: no kernel image", "CUDA_VISIBLE_DEVICES")));
  EXPECT_THAT(judge_gpus({}), IsEmpty());
}

TEST(JudgeGpus, Links) {
  EXPECT_THAT(judge_links(host_with({gpu(79)})), IsEmpty());
  EXPECT_THAT(judge_links(host_with({gpu(79), gpu(79)})), ElementsAre(IsOk("can read the memory of every other GPU directly")));
  auto gpus = std::vector{gpu(79), gpu(79), gpu(79)};
  gpus[0].unreachable = {2};
  gpus[2].unreachable = {0};
  EXPECT_THAT(judge_links(host_with(gpus)), ElementsAre(IsWarning("no direct access between GPUs 0-2: NCCL copies", "nvidia-smi topo -m")));
}

}  // namespace
}  // namespace trainer::doctor
