// How the process groups use NCCL, tested with a backend in its place that needs no GPU.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "distributed/activity.h"
#include "distributed/process_groups.h"
#include "trainer/error.h"

namespace trainer::distributed::test {
namespace {

using ::testing::ThrowsMessage;

class FakeNccl : public c10d::Backend {
 public:
  using Backend::Backend;

  static inline c10d::ErrorType error = c10d::ErrorType::SUCCESS;
  static inline bool can_connect = true;
  static inline std::shared_ptr<Activity> activity;
  static inline std::vector<at::Device> connected;
  static inline std::vector<std::string> aborts;

  const std::string getBackendName() const override { return "nccl"; }
  void setSequenceNumberForGroup() override {}
  c10d::ErrorType getError() override { return error; }
  void eagerConnectSingleDevice(at::Device device) override {
    EXPECT_TRUE(activity->read().is_waiting);
    if (!can_connect) throw std::runtime_error("NCCL error: unhandled system error");
    connected.push_back(device);
  }
  void abort() override { throw std::runtime_error("NCCL error: remote process exited"); }
};

class NcclTest : public ::testing::Test {
 protected:
  NcclTest() {
    FakeNccl::error = c10d::ErrorType::SUCCESS;
    FakeNccl::can_connect = true;
    FakeNccl::activity = std::make_shared<Activity>();
    FakeNccl::connected.clear();
    FakeNccl::aborts.clear();
    module_.make_nccl_backend = [](c10::intrusive_ptr<c10d::Store>, int rank, int size, c10::Device,
                                   std::chrono::milliseconds) -> c10::intrusive_ptr<c10d::Backend> {
      return c10::make_intrusive<FakeNccl>(rank, size);
    };
    module_.abort_nccl = [](const std::vector<c10::intrusive_ptr<c10d::Backend>>& backends, const std::string& reason) {
      FakeNccl::aborts.push_back(fmt::format("{}: {}", backends.size(), reason));
      throw std::runtime_error("NCCL error: remote process exited");
    };
  }

  std::unique_ptr<ProcessGroups> make_groups() {
    return std::make_unique<ProcessGroups>(
        c10::make_intrusive<c10d::HashStore>(), 0, 1,
        GroupOptions{.device = kDevice, .cuda = &module_, .activity = FakeNccl::activity, .ranks = {this_process()}});
  }

  const torch::Device kDevice{torch::kCUDA, 0};
  device::CudaModule module_;
};

TEST_F(NcclTest, ConnectsEachGroupWhenItIsMadeAndWaitsMeanwhile) {
  const auto groups = make_groups();
  EXPECT_EQ(FakeNccl::connected, std::vector{kDevice});
  groups->new_group({0});
  EXPECT_EQ(FakeNccl::connected, std::vector({kDevice, kDevice}));
  groups->new_group({0}, torch::kCPU)->all_reduce(torch::zeros({1}));
  EXPECT_EQ(FakeNccl::connected.size(), 2U) << "a group for tensors on the CPU must not use NCCL";
  EXPECT_FALSE(FakeNccl::activity->read().is_waiting);
}

TEST_F(NcclTest, AFailedConnectionIsAPeerError) {
  FakeNccl::can_connect = false;
  EXPECT_THAT([&] { make_groups(); },
              ThrowsMessage<PeerError>("rank 0: NCCL cannot connect 1 GPU: NCCL error: unhandled system error; NCCL_DEBUG=INFO in the "
                                       "environment shows its steps"));
}

TEST_F(NcclTest, ErrorsOfTheConnectionsAreFound) {
  const auto groups = make_groups();
  EXPECT_EQ(groups->connection_error(), "");
  const std::vector<std::pair<c10d::ErrorType, std::string>> errors = {{c10d::ErrorType::TIMEOUT, "a collective timed out"},
                                                                       {c10d::ErrorType::COMM_ERROR, "a connection was lost"},
                                                                       {c10d::ErrorType::REMOTE_ERROR, "another rank has an error"}};
  for (const auto& [error, text] : errors) {
    FakeNccl::error = error;
    EXPECT_EQ(groups->connection_error(), "rank 0: NCCL reports that " + text + "; check whether another rank exited or hangs");
  }
}

TEST_F(NcclTest, AllGroupsAreAbortedTogether) {
  auto groups = make_groups();
  groups->new_group({0});
  groups->abort_nccl("the cable broke");
  EXPECT_EQ(FakeNccl::aborts, std::vector<std::string>{"2: the cable broke"});
  groups.reset();
  EXPECT_EQ(FakeNccl::aborts.back(), "2: the process groups are destroyed");
}

TEST(WatchConnections, ReportsTheFirstErrorOnce) {
  std::atomic<int> num_asked = 0;
  std::atomic<int> num_reported = 0;
  std::promise<std::string> reported;
  const auto error = [&] { return ++num_asked < 3 ? std::string() : "the cable broke"; };
  const auto watch = watch_connections(error, [&](const std::string& text) {
    ++num_reported;
    reported.set_value(text);
  });
  EXPECT_EQ(reported.get_future().get(), "the cable broke");
  EXPECT_EQ(num_asked, 3);
  EXPECT_EQ(num_reported, 1);
}

TEST(WatchConnections, EndsAtOnceWhenNothingIsWrong) {
  std::atomic<int> num_asked = 0;
  const auto error = [&] { return ++num_asked, std::string(); };
  const auto watch = watch_connections(error, [](const std::string&) { ADD_FAILURE(); });
  while (num_asked == 0) std::this_thread::yield();
}

}  // namespace
}  // namespace trainer::distributed::test
