// Metrics of validations with classes, compared with torchmetrics.

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/testing/metrics.h"
#include "tests/testing/ranks.h"
#include "train/task/classification.h"
#include "train/task/task.h"

namespace trainer::task {
namespace {

using reporting::Mistake;
using ::testing::ElementsAre;
using testing::value_of;

nlohmann::json golden_cases() {
  std::ifstream file(TRAINER_SOURCE_DIR "/tests/golden/class_metrics.json");
  return nlohmann::json::parse(file).at("cases");
}

struct Outputs {
  torch::Tensor outputs;
  torch::Tensor labels;
};

// The same samples as in make_class_metrics.py.
Outputs make_outputs(const nlohmann::json& golden) {
  const auto number = [&](const char* key) { return golden.at(key).get<double>(); };
  const auto integer = [&](const char* key) { return golden.at(key).get<int64_t>(); };
  auto generator = at::make_generator<at::CPUGeneratorImpl>(golden.at("seed").get<uint64_t>());
  auto outputs = at::randn({integer("samples"), integer("classes")}, generator, torch::kFloat64) * number("scale");
  const auto labels = at::randint(0, integer("labels"), {integer("samples")}, generator, torch::kInt64);
  outputs.scatter_add_(1, labels.unsqueeze(1), torch::full({integer("samples"), 1}, number("boost"), torch::kFloat64));
  return {outputs.to(golden.at("dtype") == "float64" ? torch::kFloat64 : torch::kFloat32), labels};
}

Measurement measure(const Outputs& all, int64_t batch_size) {
  const int64_t num_samples = all.labels.size(0);
  const auto num_batches = (num_samples + batch_size - 1) / batch_size;
  const auto meter = make_classification(nullptr)->make_validation_meter(torch::kCPU, all.outputs.size(1), num_batches);
  for (int64_t number = 0; number < num_batches; ++number) {
    const int64_t first = number * batch_size;
    const int64_t size = std::min(batch_size, num_samples - first);
    std::vector<int64_t> samples(static_cast<size_t>(size));
    std::iota(samples.begin(), samples.end(), first);
    meter->add({.number = number, .samples = samples, .size = size}, torch::tensor(1.0), all.outputs.narrow(0, first, size),
               all.labels.narrow(0, first, size));
  }
  return meter->read(distributed::ProcessGroup());
}

TEST(ClassMetrics, EqualThoseOfTorchmetrics) {
  for (const auto& golden : golden_cases()) {
    SCOPED_TRACE(golden.dump().substr(0, 120));
    const auto& expected = golden.at("expected");
    const auto measured = measure(make_outputs(golden), 64);
    EXPECT_EQ(measured.classes.confusion, expected.at("confusion").get<std::vector<int64_t>>());
    // torchmetrics computes these quotients in float32. It also adds the confidences, whose sums reach hundreds, in float32.
    for (const char* name : {"top1", "top5", "macro_f1", "balanced_accuracy", "mcc"}) {
      EXPECT_NEAR(value_of(measured, name).value(), expected.at(name).get<double>(), 2e-7) << name;
    }
    EXPECT_NEAR(value_of(measured, "calibration_error").value(), expected.at("calibration_error").get<double>(), 1e-6);
  }
}

TEST(ClassMetrics, DoNotDependOnTheBatchSize) {
  const auto all = make_outputs(golden_cases()[1]);
  const auto one = measure(all, 1000);
  ASSERT_EQ(one.classes.mistakes.size(), static_cast<size_t>(kMostMistakes));
  for (const int64_t batch_size : {1, 7, 64}) {
    const auto other = measure(all, batch_size);
    EXPECT_EQ(value_of(other, "calibration_error"), value_of(one, "calibration_error"));
    EXPECT_EQ(other.classes.mistakes, one.classes.mistakes);
    EXPECT_EQ(other.classes.confusion, one.classes.confusion);
  }
}

TEST(Calibration, BinsIncludeTheirLowerLimitAndTheLastOneIncludesOne) {
  CalibrationMeter meter(torch::kCPU);
  const auto limit = at::linspace(0, 1, 16, torch::kFloat32)[3].item<float>();
  meter.add(torch::tensor({0.25F, limit, 0.999F, 1.0F}), torch::tensor({true, false, true, false}));
  meter.reduce(distributed::ProcessGroup());
  const auto bins = meter.bins();
  ASSERT_EQ(bins.size(), 15U);
  EXPECT_EQ(bins[2].count, 0);
  EXPECT_EQ(bins[3].count, 2);
  EXPECT_EQ(bins[3].accuracy, 0.5);
  EXPECT_NEAR(bins[3].confidence, 0.225, 1e-6);
  EXPECT_EQ(bins[14].count, 2);
  EXPECT_NEAR(bins[14].confidence, 0.9995, 1e-6);
  EXPECT_EQ(bins[0].confidence, 0);
  // The error counts the samples of confidence 0.999 and 1 separately, although they are in the same bin.
  EXPECT_NEAR(meter.expected_error(), (2 * (0.5 - 0.225) + 0.001 + 1) / 4, 1e-6);
}

TEST(Calibration, OfNoSamplesIsZero) {
  CalibrationMeter meter(torch::kCPU);
  meter.reduce(distributed::ProcessGroup());
  EXPECT_EQ(meter.expected_error(), 0);
}

TEST(Mistakes, TheMostConfidentComesFirstAndOfEqualOnesTheFirstSample) {
  MistakeList list(torch::kCPU);
  list.add(torch::tensor({0.5F, 0.75F, 0.875F}), torch::tensor({1, 2, 0}), torch::tensor({0, 0, 0}), /*samples=*/{3, 4, 5});
  list.add(torch::tensor({0.5F, 0.75F, 0.25F}), torch::tensor({1, 1, 2}), torch::tensor({0, 2, 1}), /*samples=*/{0, 1, 2});
  EXPECT_THAT(list.read(distributed::ProcessGroup()), ElementsAre(Mistake{1, 2, 1, 0.75}, Mistake{4, 0, 2, 0.75}, Mistake{0, 0, 1, 0.5},
                                                                  Mistake{3, 0, 1, 0.5}, Mistake{2, 1, 2, 0.25}));
}

TEST(Mistakes, HaveTheIndicesOfTheirSamplesAlsoIfOthersWereSkipped) {
  const auto outputs = torch::tensor({{0.0, 3.0}, {1.0, 0.0}, {0.0, 2.0}});
  const auto labels = torch::tensor({0, 0, 0});
  for (const bool are_known : {true, false}) {
    const auto meter = make_classification(nullptr)->make_validation_meter(torch::kCPU, /*num_classes=*/2, /*num_batches=*/1);
    const auto samples = are_known ? std::vector<int64_t>{1, 3, 4} : std::vector<int64_t>();
    meter->add({.number = 0, .samples = samples, .size = 3}, torch::tensor(1.0), outputs, labels);
    const auto measured = meter->read(distributed::ProcessGroup());
    std::vector<int64_t> indices;
    for (const auto& mistake : measured.classes.mistakes) indices.push_back(mistake.index);
    EXPECT_EQ(indices, are_known ? (std::vector<int64_t>{1, 4}) : std::vector<int64_t>());
    EXPECT_THAT(measured.classes.confusion, ElementsAre(1, 2, 0, 0));
  }
}

TEST(ClassMetrics, AnOutputThatIsNotANumberHasNoConfidence) {
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  const auto measured = measure({torch::tensor({{nan, 1.0F}, {0.0F, 2.0F}}), torch::tensor({1, 1})}, 2);
  EXPECT_EQ(measured.classes.calibration[0].count, 1);
  EXPECT_THAT(measured.classes.mistakes, ElementsAre(Mistake{0, 1, 0, 0.0}));
}

}  // namespace
}  // namespace trainer::task
