// Tasks whose targets are numbers or any number of classes, and the values that they compute from the training samples.
// tests/parity/test_targets.py compares the metrics with torchmetrics.

#include <gmock/gmock.h>

#include <cmath>
#include <memory>

#include "base/keys/key.h"
#include "data/dataset.h"
#include "tests/testing/metrics.h"
#include "tests/testing/ranks.h"
#include "train/task/multi_label.h"
#include "train/task/task.h"
#include "trainer/error.h"
#include "trainer/nn.h"

namespace trainer::task {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using testing::value_of;

std::unique_ptr<nn::Loss> make_loss(const std::string& name) { return nn::loss_registry().make(nn::loss_registry().configure(name)); }

class Targets : public data::Dataset {
 public:
  Targets(data::DatasetInfo info, std::vector<std::vector<double>> targets) : info_(std::move(info)), targets_(std::move(targets)) {}
  const data::DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return static_cast<int64_t>(targets_.size()); }
  data::Target target(int64_t index, data::Scratch&) const override {
    const auto& values = targets_[static_cast<size_t>(index)];
    return {.label = static_cast<int64_t>(values[0]), .values = values};
  }
  data::Sample read(int64_t, data::Scratch&) const override { throw std::logic_error("no sample is needed"); }

 private:
  data::DatasetInfo info_;
  std::vector<std::vector<double>> targets_;
};

TEST(TargetSummary, CountsClasses) {
  const auto summary = data::summarize_targets(Targets({.shape = {1}, .num_classes = 3}, {{2}, {0}, {2}, {7}}));
  EXPECT_EQ(summary.num_samples, 4);
  EXPECT_THAT(summary.class_counts, ElementsAre(1, 0, 2));
  const auto several = data::summarize_targets(Targets({.shape = {1}, .num_classes = 2, .is_multi_label = true}, {{1, 0}, {1, 1}, {0, 0}}));
  EXPECT_THAT(several.class_counts, ElementsAre(2, 1));
}

TEST(TargetSummary, MeanAndDeviationOfLargeAndConstantNumbers) {
  const auto summary = data::summarize_targets(Targets({.shape = {1}, .num_targets = 2}, {{1.7e9 + 1, 5}, {1.7e9 + 3, 5}, {1.7e9 + 5, 5}}));
  EXPECT_THAT(summary.mean, ElementsAre(1.7e9 + 3, 5));
  EXPECT_DOUBLE_EQ(summary.deviation[0], std::sqrt(8.0 / 3));
  EXPECT_EQ(summary.deviation[1], 1);
}

TEST(Task, TheDataChooseBetweenOneClassAndSeveral) {
  EXPECT_EQ(default_task(*make_loss("bce"), true), "multi_label");
  EXPECT_EQ(default_task(*make_loss("bce"), false), "classification");
  EXPECT_EQ(default_task(*make_loss("cross_entropy"), true), "classification");
  EXPECT_EQ(default_task(*make_loss("huber"), false), "regression");
  EXPECT_THAT([] { make_multi_label(make_loss("cross_entropy")); }, ThrowsMessage<UsageError>(HasSubstr("such as bce")));
}

TEST(Regression, TheLossComparesNormalisedTargets) {
  class Constant : public models::Model {
   public:
    struct Options : models::ModelOptions {
      void describe(KeyTable&) {}
      std::vector<int64_t> input_shape() const override { return {2}; }
      int64_t num_outputs() const override { return 2; }
    };
    Constant() : Model(Options()) {}
    torch::Tensor forward(const torch::Tensor& x) override { return x; }
  } model;
  const auto task = make_regression(make_loss("mse"));
  EXPECT_TRUE(task->needs_target_summary());
  EXPECT_THAT(task->set_target_summary(data::TargetSummary{.num_samples = 3, .mean = {10, -1}, .deviation = {2, 4}}),
              HasSubstr("mean 10, -1, standard deviation 2, 4"));
  const auto outputs = torch::tensor({{1.0, 0.5}, {0.0, 0.0}});
  const auto targets = torch::tensor({{12.0, 3.0}, {10.0, -1.0}});
  const auto pass = task->forward(model, outputs, targets);
  EXPECT_DOUBLE_EQ(pass.loss.item<double>(), 0.25 / 4);
  EXPECT_TRUE(torch::equal(pass.outputs, torch::tensor({{12.0, 1.0}, {10.0, -1.0}}, torch::kFloat64)));
  // Times in seconds since 1970, which float32 rounds to multiples of 128.
  task->set_target_summary(data::TargetSummary{.num_samples = 3, .mean = {1.7e9, 0}, .deviation = {24, 1}});
  const auto times = torch::tensor({{1.7e9 + 24, 0.5}, {1.7e9, 0.0}}, torch::kFloat64);
  const auto of_times = task->forward(model, outputs, times);
  EXPECT_EQ(of_times.loss.item<double>(), 0);
  EXPECT_EQ(of_times.loss.scalar_type(), torch::kFloat32);
  EXPECT_TRUE(torch::equal(of_times.outputs, times));
  task->set_target_summary(std::nullopt);
  EXPECT_TRUE(torch::equal(task->forward(model, outputs, targets).outputs, outputs));
}

// A run that resumes may validate before its first step.
TEST(Regression, TrainsAfterAValidation) {
  const auto task = make_regression(make_loss("mse"));
  task->set_target_summary(data::TargetSummary{.num_samples = 3, .mean = {10}, .deviation = {2}});
  class Line : public models::Model {
   public:
    struct Options : models::ModelOptions {
      void describe(KeyTable&) {}
      std::vector<int64_t> input_shape() const override { return {1}; }
      int64_t num_outputs() const override { return 1; }
    };
    Line() : Model(Options()) { weight = register_parameter("weight", torch::ones({1})); }
    torch::Tensor forward(const torch::Tensor& x) override { return x * weight; }
    torch::Tensor weight;
  } model;
  const auto x = torch::ones({4, 1});
  {
    const torch::InferenceMode inference;
    task->evaluate(model, x, x, TestTimeAugmentation::kNone);
  }
  (task->forward(model, x, x).outputs * x).sum().backward();
  EXPECT_EQ(model.weight.grad().item<float>(), 8);
}

TEST(Regression, MetricsDoNotDependOnBatches) {
  torch::manual_seed(1);
  const auto targets = torch::randn({50, 2}, torch::kFloat64) + 1e6;
  const auto outputs = targets + 0.1 * torch::randn({50, 2}, torch::kFloat64);
  const auto task = make_regression(nullptr);
  task->set_target_summary(data::TargetSummary{.num_samples = 1, .mean = {1e6, 1e6}, .deviation = {1, 1}});
  const auto measure = [&](int64_t batch_size) {
    const auto num_batches = (50 + batch_size - 1) / batch_size;
    const auto meter = task->make_validation_meter(torch::kCPU, 2, num_batches);
    for (int64_t i = 0; i < num_batches; ++i) {
      const auto size = std::min(batch_size, 50 - i * batch_size);
      meter->add({.number = i, .size = size}, torch::tensor(1.0), outputs.narrow(0, i * batch_size, size),
                 targets.narrow(0, i * batch_size, size));
    }
    return meter->read(distributed::ProcessGroup());
  };
  const auto whole = measure(50);
  const auto error = outputs - targets;
  EXPECT_NEAR(*value_of(whole, "mae"), error.abs().mean().item<double>(), 1e-12);
  EXPECT_NEAR(*value_of(whole, "rmse"), error.square().mean().sqrt().item<double>(), 1e-12);
  const auto explained = 1 - error.square().sum(0) / (targets - targets.mean(0)).square().sum(0);
  EXPECT_NEAR(*value_of(whole, "r2"), explained.mean().item<double>(), 1e-9);
  EXPECT_EQ(whole.numbers.targets.size(), 100U);
  const auto parts = measure(7);
  for (const auto* name : {"mae", "rmse", "r2"}) EXPECT_NEAR(*value_of(parts, name), *value_of(whole, name), 1e-12) << name;
  EXPECT_EQ(parts.numbers.predictions, whole.numbers.predictions);
  // The number of points is limited to what a plot can show, also with small batches.
  const auto many = task->make_validation_meter(torch::kCPU, 2, 2500);
  for (int64_t i = 0; i < 2500; ++i)
    many->add({.number = i, .size = 2}, torch::tensor(1.0), outputs.narrow(0, 0, 2), targets.narrow(0, 0, 2));
  const auto points = many->read(distributed::ProcessGroup()).numbers.targets.size() / 2;
  EXPECT_GT(points, 500U);
  EXPECT_LE(points, 1000U);
}

TEST(Regression, ConstantTargetsHaveAnR2) {
  const auto r2 = [](double error) {
    const auto meter = make_regression(nullptr)->make_validation_meter(torch::kCPU, 1, 1);
    meter->add({.number = 0, .size = 2}, torch::tensor(1.0), torch::full({2, 1}, 3 + error), torch::full({2, 1}, 3.0));
    return *value_of(meter->read(distributed::ProcessGroup()), "r2");
  };
  EXPECT_EQ(r2(0), 1);
  EXPECT_EQ(r2(1), 0);
}

TEST(MultiLabel, EqualScoresHaveOneThreshold) {
  const auto scores = torch::tensor({{0.9F, 0.2F}, {0.5F, 0.2F}, {0.5F, 0.2F}, {0.1F, 0.2F}});
  const auto targets = torch::tensor({{1, 0}, {1, 0}, {0, 0}, {0, 0}}) > 0;
  const auto measured = measure_labels(scores, targets);
  const auto& first = measured.results.classes[0];
  // The precision is 1 of 1 at 0.9, and 2 of 3 at 0.5.
  EXPECT_NEAR(first.average_precision, 0.5 + 0.5 * 2 / 3, 1e-12);
  EXPECT_NEAR(first.f1, 0.8, 1e-12);
  EXPECT_NEAR(first.threshold, 0.3, 1e-7);
  // The second class has no samples, so there is nothing to measure.
  const auto& second = measured.results.classes[1];
  EXPECT_EQ(second.average_precision, 0);
  EXPECT_EQ(second.threshold, 0.5);
  EXPECT_NEAR(measured.mean_average_precision, first.average_precision, 1e-12);
  EXPECT_EQ(measured.exact_match, 0.75);
  EXPECT_THAT(measured.results.co_occurrence, ElementsAre(2, 0, 0, 0));
}

TEST(MultiLabel, ThresholdsThatWereChosenBeforeReplaceThoseChosenOnTheMeasuredSamples) {
  const auto probabilities = torch::tensor({{0.9, 0.2, 0.1}, {0.6, 0.8, 0.7}, {0.4, 0.3, 0.2}, {0.1, 0.6, 0.3}}, torch::kFloat64);
  const auto targets = torch::tensor({{1, 0, 0}, {1, 1, 0}, {1, 0, 0}, {0, 1, 0}});
  Measurement measured;
  const auto fitted = measure_labels(probabilities.to(torch::kFloat32), targets > 0);
  measured.labels = fitted.results;
  for (const auto& info : make_multi_label(nullptr)->validation_metrics()) measured.metrics.push_back({info, 1.0});
  ThresholdMeter meter({0.5, 0.7, 0.6});
  for (const int64_t half : {0, 2}) meter.add(probabilities.narrow(0, half, 2), targets.narrow(0, half, 2));
  meter.reduce(distributed::ProcessGroup());
  const auto refitted = meter.replace_in(measured);
  // First class: 2 of 3 found, 2 of 2 right. Second: 1 of 2 found, 1 of 1 right. The third has no samples, and one is assigned to it.
  EXPECT_NEAR(*value_of(measured, "macro_f1"), (4.0 / 5 + 2.0 / 3) / 2, 1e-12);
  EXPECT_EQ(*value_of(measured, "exact_match"), 0.25);
  EXPECT_EQ(*value_of(measured, "map"), 1);
  ASSERT_EQ(refitted.size(), 2U);
  EXPECT_EQ(refitted[0].info.name, "macro_f1");
  EXPECT_EQ(refitted[0].value, 1);
  const auto& first = measured.labels.classes[0];
  EXPECT_NEAR(first.recall, 2.0 / 3, 1e-12);
  EXPECT_EQ(first.precision, 1);
  EXPECT_EQ(first.threshold, 0.5);
  EXPECT_EQ(measured.labels.classes[2].precision, 0);
  EXPECT_EQ(first.average_precision, fitted.results.classes[0].average_precision);
}

TEST(MultiLabel, NothingMeasuredAndOutputsThatAreNotFinite) {
  const auto task = make_multi_label(make_loss("bce"));
  const auto nothing = task->make_validation_meter(torch::kCPU, 3, 0)->read(distributed::ProcessGroup());
  EXPECT_EQ(*value_of(nothing, "map"), 0);
  const auto meter = task->make_validation_meter(torch::kCPU, 1, 1);
  meter->add({.number = 0, .size = 2}, torch::tensor(1.0), torch::tensor({{std::nan("")}, {1.0}}), torch::tensor({{0.0}, {1.0}}));
  EXPECT_EQ(*value_of(meter->read(distributed::ProcessGroup()), "map"), 1);
}

TEST(Loss, WeightsOfClassesFollowFromTheirCounts) {
  const auto with_auto = [](const char* name, const char* key) {
    auto component = nn::loss_registry().configure(name);
    SectionKeys(*component.options).find(key)->read(Node::scalar("auto"));
    return nn::loss_registry().make(component);
  };
  const auto cross_entropy = with_auto("cross_entropy", "class_weights");
  EXPECT_TRUE(cross_entropy->needs_class_counts());
  EXPECT_TRUE(cross_entropy->weighs_samples());
  const auto outputs = torch::randn({4, 2}, torch::kFloat64);
  EXPECT_THROW((*cross_entropy)(outputs, torch::tensor({0, 1, 1, 1})), UsageError);
  EXPECT_THAT(cross_entropy->set_class_counts(8, {2, 6}), ElementsAre(2, 8.0 / 12));
  EXPECT_TRUE(torch::equal(cross_entropy->sample_weights(torch::tensor({0, 1})).to(torch::kFloat32), torch::tensor({2.0F, 8.0F / 12})));
  const auto bce = with_auto("bce", "pos_weight");
  EXPECT_FALSE(bce->weighs_samples());
  // A class with all samples, or none, has a finite weight.
  EXPECT_THAT(bce->set_class_counts(8, {2, 8, 0}), ElementsAre(3, 0.125, 8));
}

}  // namespace
}  // namespace trainer::task
