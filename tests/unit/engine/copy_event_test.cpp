#include <gtest/gtest.h>

#include "tests/testing/fake_device.h"
#include "train/engine/device_batches.h"

namespace trainer::engine {
namespace {

using testing::FakeDevice;

TEST(DeviceCopyEvent, CountsAsWaitingForOtherRanksWhileItWaitsForTheDevice) {
  const auto activity = std::make_shared<distributed::Activity>();
  DeviceCopyEvent event(FakeDevice::kDevice, activity);
  int num_waits = 0;
  FakeDevice::on_wait = [&] {
    ++num_waits;
    EXPECT_TRUE(activity->read().is_waiting);
  };
  event.wait();
  EXPECT_EQ(num_waits, 0) << "nothing was recorded";
  FakeDevice::work(1);
  event.record();
  event.wait();
  EXPECT_EQ(num_waits, 1);
  EXPECT_FALSE(activity->read().is_waiting);
  FakeDevice::on_wait = nullptr;
}

}  // namespace
}  // namespace trainer::engine
