#include "device/placement.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace trainer::device {
namespace {

Placement place(const config::RuntimeSection& runtime = {}, const config::AmpSection& amp = {}, const CudaModule* cuda = nullptr) {
  return choose_placement(runtime, amp, {}, 3, cuda);
}

int two_devices() { return 2; }
int hopper(int) { return 9; }
int volta(int) { return 7; }
uint64_t peak(int) { return 12345; }

TEST(Placement, AutoFollowsTheProcessor) {
  const auto placement = place();
  EXPECT_TRUE(placement.device.is_cpu());
  EXPECT_EQ(placement.autocast_dtype.has_value(), cpu_has_fast_bfloat16());
  EXPECT_EQ(placement.input_dtype, cpu_has_fast_bfloat16() ? torch::kBFloat16 : torch::kFloat32);
  EXPECT_EQ(placement.memory_format, torch::MemoryFormat::ChannelsLast);
  EXPECT_EQ(placement.num_threads, 3);
  EXPECT_FALSE(placement.pin_memory);
}

TEST(Placement, AutoFollowsTheGpu) {
  const CudaModule new_gpu{&two_devices, &hopper, &peak};
  const auto placement = place({}, {}, &new_gpu);
  EXPECT_TRUE(placement.device.is_cuda());
  EXPECT_EQ(placement.autocast_dtype, torch::kBFloat16);
  EXPECT_TRUE(placement.pin_memory);
  EXPECT_EQ(memory_in_use(placement), 12345U);
  const CudaModule old_gpu{&two_devices, &volta, &peak};
  EXPECT_EQ(place({}, {}, &old_gpu).autocast_dtype, std::nullopt);
  EXPECT_TRUE(place({.device = config::DeviceChoice::kCpu}, {}, &new_gpu).device.is_cpu());
}

TEST(Placement, WhatTheFileSaysIsDone) {
  const auto float64 = place({.dtype = config::DtypeChoice::kFloat64, .threads = {7}});
  EXPECT_EQ(float64.dtype, torch::kFloat64);
  EXPECT_EQ(float64.autocast_dtype, std::nullopt);
  EXPECT_EQ(float64.memory_format, torch::MemoryFormat::Contiguous);
  EXPECT_EQ(float64.num_threads, 7);
  const auto mixed = place({.channels_last = {false}}, {.enabled = {true}});
  EXPECT_EQ(mixed.autocast_dtype, torch::kBFloat16);
  EXPECT_EQ(mixed.memory_format, torch::MemoryFormat::Contiguous);
  EXPECT_EQ(to_string(mixed), "cpu, 3 threads, float32 with bfloat16 autocast");
}

TEST(Placement, AGpuThatIsNotThere) {
  try {
    place({.device = config::DeviceChoice::kCuda});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "runtime.device: cuda was asked for, but this machine offers no GPU to this program; set cpu or auto");
  }
}

TEST(Placement, IsApplied) {
  config::RuntimeSection runtime;
  runtime.deterministic = true;
  auto placement = place(runtime);
  placement.num_threads = 2;
  apply_placement(placement, runtime);
  EXPECT_EQ(at::get_num_threads(), 2);
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_FALSE(at::globalContext().deterministicAlgorithmsWarnOnly());
  EXPECT_FALSE(at::globalContext().benchmarkCuDNN());
  EXPECT_GT(memory_in_use(placement), 10'000'000U);
}

}  // namespace
}  // namespace trainer::device
