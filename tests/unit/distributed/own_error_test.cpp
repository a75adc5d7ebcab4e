// Errors of a rank's own device that surface in a collective are not blamed on other ranks.

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "distributed/first_line.h"
#include "trainer/distributed.h"
#include "trainer/error.h"

namespace trainer::distributed::test {
namespace {

// A backend whose all_reduce throws the exception of `fail`.
class FailingBackend : public c10d::Backend {
 public:
  explicit FailingBackend(std::function<void()> fail) : Backend(0, 1), fail_(std::move(fail)) {}
  const std::string getBackendName() const override { return "failing"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    fail_();
    return {};
  }

 private:
  std::function<void()> fail_;
};

constexpr const char* kNcclError =
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3780, unhandled cuda error (run with NCCL_DEBUG=INFO for "
    "details), NCCL version 2.28.9\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'";

void all_reduce_failing(const std::function<void()>& fail) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(c10::make_intrusive<c10d::HashStore>(), 0, 1);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  group->setBackend(torch::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, c10::make_intrusive<FailingBackend>(fail));
  group->setGroupName("failing");
  ProcessGroup(group, {0}, std::chrono::seconds(1)).all_reduce(torch::zeros({1}));
}

TEST(OwnError, KeepsItsTypeInACollective) {
  const auto illegal_access = [] {
    throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 700, "CUDA error: an illegal memory access was encountered");
  };
  EXPECT_THROW(all_reduce_failing(illegal_access), c10::AcceleratorError);
  EXPECT_THROW(all_reduce_failing([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory"); }), c10::OutOfMemoryError);
  EXPECT_THROW(all_reduce_failing([] { throw std::bad_alloc(); }), std::bad_alloc);
  EXPECT_THROW(all_reduce_failing([] { TORCH_CHECK_WITH(DistBackendError, false, kNcclError); }), c10::DistBackendError);
}

TEST(OwnError, OfNcclIsOneLineWithItsReason) {
  const c10::Error error({__func__, __FILE__, __LINE__}, kNcclError);
  EXPECT_EQ(first_line(error),
            "NCCL: unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.28.9: Cuda failure 2 'out of memory'");
}

TEST(OwnError, ALostConnectionIsThatOfAnotherRank) {
  EXPECT_THAT([] { all_reduce_failing([] { throw std::runtime_error("Connection reset by peer"); }); },
              ::testing::ThrowsMessage<PeerError>(
                  "rank 0: all_reduce among ranks 0 failed: Connection reset by peer; check whether another rank exited or hangs"));
}

}  // namespace
}  // namespace trainer::distributed::test
