// The example of docs/extending.md, section "Add a metric".

#include <gmock/gmock.h>

#include "task/classification.h"
#include "tests/testing/example.h"
#include "tests/testing/metrics.h"
#include "trainer/distributed.h"

namespace trainer::task {
namespace {

// Example: metric
// Mean over the classes that occur of the fraction of their samples that is right.
double balanced_accuracy(const torch::Tensor& confusion) {
  const auto num_samples = confusion.sum(1);
  const auto occurs = num_samples > 0;
  const auto recall = confusion.diagonal().to(torch::kFloat64) / num_samples.clamp_min(1);
  return recall.masked_select(occurs).mean().item<double>();
}
// End of example

// clang-format off
const std::vector<ClassMetric> kNewMetrics = {
// Example: metric entry
{.info = {.name = "balanced_accuracy", .higher_is_better = true, .format = reporting::MetricFormat::kPercent},
 .from_confusion = balanced_accuracy},
// End of example
};
// clang-format on

TEST(AddAMetric, TheExampleIsMeasuredAndReported) {
  auto metrics = class_metrics();
  metrics.insert(metrics.end(), kNewMetrics.begin(), kNewMetrics.end());
  const auto task = make_classification(nullptr, metrics);
  EXPECT_EQ(task->metrics().validation.back().name, "balanced_accuracy");
  const auto meter = task->make_validation_meter(torch::kCPU, /*num_classes=*/3, /*num_batches=*/1);
  // Class 0: two of three are correct; class 1: one of one; class 2 does not occur.
  const auto outputs = torch::tensor({{3.0, 1.0, 2.0}, {3.0, 1.0, 2.0}, {1.0, 2.0, 3.0}, {1.0, 3.0, 2.0}});
  meter->add({.number = 0, .size = 4}, torch::tensor(1.0), outputs, torch::tensor({0, 0, 0, 1}, torch::kInt64));
  const auto measured = meter->read(distributed::ProcessGroup());
  EXPECT_DOUBLE_EQ(testing::value_of(measured, "balanced_accuracy").value(), (2.0 / 3 + 1) / 2);
  EXPECT_EQ(testing::value_of(measured, "top1"), 0.75);
}

TEST(AddAMetric, ExampleEqualsTheCodeInTheDocs) {
  for (const char* name : {"metric", "metric entry"}) {
    EXPECT_THAT(testing::extending_page(), ::testing::HasSubstr(testing::example_in("tests/unit/task/add_a_metric_test.cpp", name)));
  }
}

}  // namespace
}  // namespace trainer::task
