#include "device/stopwatch.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/testing/fake_device.h"

namespace trainer::device::test {
namespace {

using testing::FakeDevice;

TEST(Stopwatch, MeasuresByTheHostsClockOnACpu) {
  Stopwatch watch(torch::kCPU);
  watch.start();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  watch.stop();
  EXPECT_GE(watch.read(), 0.002);
  EXPECT_EQ(watch.read(), 0);
}

TEST(Stopwatch, AStopWithoutAStartAddsNothing) {
  Stopwatch watch(torch::kCPU);
  watch.stop();
  EXPECT_EQ(watch.read(), 0);
  watch.start();
  watch.stop();
  watch.read();
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  watch.stop();
  EXPECT_EQ(watch.read(), 0);
}

TEST(Stopwatch, MeasuresTheGpusTimeBetweenStartAndStop) {
  Stopwatch watch(FakeDevice::kDevice);
  FakeDevice::work(1);
  for (const double seconds : {2.0, 8.0}) {
    watch.start();
    FakeDevice::work(seconds);
    watch.stop();
    FakeDevice::work(4);
  }
  EXPECT_EQ(watch.read(), 10);
  EXPECT_EQ(watch.read(), 0);
}

TEST(Stopwatch, ASecondStartLosesNoTime) {
  Stopwatch watch(FakeDevice::kDevice);
  watch.start();
  FakeDevice::work(1);
  watch.start();
  FakeDevice::work(2);
  watch.stop();
  EXPECT_EQ(watch.read(), 3);
}

TEST(Stopwatch, WaitsForAGpuOnlyWhenRead) {
  Stopwatch watch(FakeDevice::kDevice);
  const int waits_before = FakeDevice::num_waits;
  const int events_before = FakeDevice::num_events;
  const auto lap = [&watch] {
    watch.start();
    FakeDevice::work(1);
    watch.stop();
  };
  for (int i = 0; i < 3; ++i) lap();
  EXPECT_EQ(FakeDevice::num_events, events_before + 6);
  FakeDevice::catch_up();
  lap();
  EXPECT_EQ(FakeDevice::num_events, events_before + 2) << "events that the GPU has passed are still kept";
  EXPECT_EQ(FakeDevice::num_waits, waits_before);
  EXPECT_EQ(watch.read(), 4);
  EXPECT_EQ(FakeDevice::num_waits, waits_before + 1);
  EXPECT_EQ(FakeDevice::num_events, events_before);
}

}  // namespace
}  // namespace trainer::device::test
