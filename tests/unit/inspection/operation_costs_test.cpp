#include <gmock/gmock.h>

#include "run/inspection/inspect.h"

namespace trainer::inspection {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> texts_of(const std::vector<OperationCost>& costs) {
  std::vector<std::string> texts;
  for (const auto& cost : costs) {
    texts.push_back(cost.name + " " + std::to_string(cost.num_calls) + " " + std::to_string(cost.cpu_ns) + " " +
                    std::to_string(cost.gpu_ns));
  }
  return texts;
}

TEST(OperationCosts, TimeOfInnerOperationsIsTheirs) {
  EXPECT_THAT(texts_of(sum_costs({
                  {.name = "conv", .thread = 1, .start_ns = 10, .end_ns = 60},
                  {.name = "empty", .thread = 1, .start_ns = 20, .end_ns = 25},
                  {.name = "empty", .thread = 1, .start_ns = 25, .end_ns = 27},
                  {.name = "ProfilerStep#3", .thread = 1, .start_ns = 0, .end_ns = 100},
                  {.name = "ProfilerStep#4", .thread = 1, .start_ns = 100, .end_ns = 110},
                  // These operations run in another thread at the same time.
                  {.name = "backward", .thread = 2, .start_ns = 30, .end_ns = 130},
                  {.name = "conv", .thread = 2, .start_ns = 30, .end_ns = 90},
              })),
              ElementsAre("conv 2 103 0", "(outside of operations) 2 60 0", "backward 1 40 0", "empty 2 7 0"));
}

TEST(OperationCosts, OperationsGetTheTimeOfTheirKernels) {
  EXPECT_THAT(texts_of(sum_costs({
                  {.name = "conv", .thread = 1, .start_ns = 0, .end_ns = 50, .id = 7},
                  // The call of the CUDA runtime has another thread number, and lies within the operation.
                  {.name = "cudaLaunchKernel", .thread = 99, .start_ns = 10, .end_ns = 20, .id = 8, .caller = 7},
                  {.name = "kernel", .thread = 0, .start_ns = 40, .end_ns = 240, .is_on_gpu = true, .id = 8, .caller = 7},
                  {.name = "kernel", .thread = 0, .start_ns = 240, .end_ns = 250, .is_on_gpu = true, .id = 9, .caller = 7},
              })),
              ElementsAre("conv 1 40 210", "cudaLaunchKernel 1 10 0"));
}

TEST(OperationCosts, TableShowsTheFirstOperations) {
  const std::vector<OperationCost> costs = {
      {std::string(70, 'x'), 3, 7'500'000, 0}, {"aten::add_", 1200, 2'500'000, 0}, {"aten::mul", 1, 0, 0}};
  EXPECT_THAT(to_lines(costs, 2), ElementsAre("operation" + std::string(51, ' ') + "    calls      self CPU    share",
                                              std::string(60, 'x') + "        3       7.50 ms   75.0 %",
                                              "aten::add_" + std::string(50, ' ') + "     1200       2.50 ms   25.0 %"));
  EXPECT_THAT(to_lines({}, 10), ElementsAre("operation    calls      self CPU    share"));
}

TEST(OperationCosts, TableShowsTheGpuIfItWasUsed) {
  EXPECT_THAT(to_lines({{"aten::convolution", 1, 1'000'000, 3'000'000}, {"aten::add", 1, 0, 1'000'000}}, 10),
              ElementsAre("operation            calls      self CPU    share      self GPU    share",
                          "aten::convolution        1       1.00 ms  100.0 %       3.00 ms   75.0 %",
                          "aten::add                1       0.00 ms    0.0 %       1.00 ms   25.0 %"));
}

}  // namespace
}  // namespace trainer::inspection
