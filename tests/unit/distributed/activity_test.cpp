#include "distributed/activity.h"

#include <gtest/gtest.h>

#include "distributed/data_parallel.h"
#include "tests/testing/fake_device.h"
#include "tests/testing/ranks.h"

namespace trainer::distributed::test {
namespace {

using testing::FakeDevice;

TEST(OwnWork, IsLoadingAndComputingUntilTheExchangeWithoutWaits) {
  Activity activity;
  activity.time_own_work(FakeDevice::kDevice);
  activity.enter(Phase::kLoading, 0);
  FakeDevice::work(1);
  activity.enter(Phase::kStep, 0);
  FakeDevice::work(2);
  {
    const Activity::Wait wait(&activity);
    FakeDevice::work(100);
  }
  FakeDevice::work(4);
  activity.begin_exchange();
  FakeDevice::work(100);
  {
    const Activity::Wait wait(&activity);
    FakeDevice::work(100);
  }
  FakeDevice::work(100);
  activity.enter(Phase::kLoading, 1);
  FakeDevice::work(8);
  // A micro-step without exchange of gradients.
  activity.enter(Phase::kStep, 1);
  FakeDevice::work(16);
  activity.enter(Phase::kLoading, 1);
  FakeDevice::work(32);
  activity.enter(Phase::kValidation);
  FakeDevice::work(100);
  const auto own = activity.read_own_work();
  EXPECT_EQ(own.data, 1 + 8 + 32);
  EXPECT_EQ(own.compute, 2 + 4 + 16);
  EXPECT_EQ(own.total(), 63);
  EXPECT_EQ(activity.read_own_work().total(), 0);
}

// One bucket for each of two layers; that of the second layer is ready first.
class TwoLayers : public torch::nn::Module {
 public:
  TwoLayers() {
    first = register_parameter("first", torch::ones({40, 30}));
    second = register_parameter("second", torch::ones({30, 20}));
  }
  torch::Tensor first, second;
};

TEST(OwnWork, EndsWhenTheFirstBucketIsReady) {
  for (const auto exchange : {GradientExchange::kAllReduce, GradientExchange::kSharedMemory, GradientExchange::kAfterBackward}) {
    testing::run_ranks(2, [&](ProcessGroups& groups) {
      TwoLayers model;
      DataParallelOptions options;
      options.bucket_cap_mb = 0.001;
      DataParallel parallel(model, groups.world(), options, /*averages=*/false, exchange);
      ASSERT_EQ(parallel.bucket_sizes().size(), 2U);
      auto& activity = *groups.world()->activity();
      activity.time_own_work(FakeDevice::kDevice);
      model.second.register_hook([](const torch::Tensor&) { FakeDevice::work(2); });
      model.first.register_hook([](const torch::Tensor&) { FakeDevice::work(100); });
      for (const bool is_last : {false, true}) {
        activity.enter(Phase::kStep);
        parallel.before_forward(!is_last, is_last);
        FakeDevice::work(1);
        const auto outputs = torch::ones({4, 40}).mm(model.first).mm(model.second);
        parallel.backward(outputs.sum(), is_last);
      }
      activity.enter(Phase::kEnd);
      // The compute time is the whole first micro-step, and the second one until its first bucket.
      EXPECT_EQ(activity.read_own_work().compute, (1 + 2 + 100) + (1 + 2)) << "exchange " << static_cast<int>(exchange);
    });
  }
}

}  // namespace
}  // namespace trainer::distributed::test
