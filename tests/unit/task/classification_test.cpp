#include "train/task/classification.h"

#include <gmock/gmock.h>
#include <torch/nn/functional/loss.h>

#include <limits>
#include <numeric>

#include "tests/testing/metrics.h"
#include "tests/testing/ranks.h"
#include "train/task/task.h"
#include "trainer/error.h"

namespace trainer::task {
namespace {

using testing::loss_of;
using testing::value_of;

torch::Tensor labels(const std::vector<int64_t>& values) { return torch::tensor(values, torch::kInt64); }

// Outputs whose largest value is that of class `first`, the second largest that of first + 1, … (modulo the number of classes).
torch::Tensor ranked_outputs(const std::vector<int64_t>& first, int64_t num_classes) {
  auto outputs = torch::empty({static_cast<int64_t>(first.size()), num_classes});
  for (size_t i = 0; i < first.size(); ++i) {
    for (int64_t rank = 0; rank < num_classes; ++rank) {
      outputs[static_cast<int64_t>(i)][(first[i] + rank) % num_classes] = -static_cast<double>(rank);
    }
  }
  return outputs;
}

const distributed::ProcessGroup& one_process() {
  static const distributed::ProcessGroup group;
  return group;
}

TrainMeter classes_meter() { return make_classification(nullptr)->make_train_meter(torch::kCPU); }
TrainMeter loss_meter() { return {torch::kCPU, {}}; }

TEST(TrainMeter, WeightsBatchesByTheirSize) {
  auto meter = classes_meter();
  meter.add(torch::tensor(1.0F), ranked_outputs({0, 0, 0, 0}, 10), labels({0, 4, 5, 9}), 4);
  meter.add(torch::tensor(4.0F), ranked_outputs({3}, 10), labels({3}), 1);
  const auto scores = meter.read(one_process());
  EXPECT_EQ(scores.num_samples, 5);
  EXPECT_DOUBLE_EQ(loss_of(scores), (4 * 1.0 + 4.0) / 5);
  EXPECT_DOUBLE_EQ(value_of(scores, "top1").value(), 2.0 / 5);
  EXPECT_FALSE(value_of(scores, "top5").has_value());
}

TEST(TrainMeter, SumsOverTheRanks) {
  testing::run_ranks(3, [](distributed::ProcessGroups& groups) {
    const auto& world = *groups.world();
    auto meter = classes_meter();
    // Rank 0 has no sample, rank 1 one, rank 2 two.
    for (int64_t i = 0; i < world.rank(); ++i)
      meter.add(torch::tensor(1.0F + static_cast<float>(i)), ranked_outputs({i}, 3), labels({0}), 1);
    const auto scores = meter.read(world);
    EXPECT_EQ(scores.num_samples, 3);
    EXPECT_DOUBLE_EQ(loss_of(scores), 4.0 / 3);
    EXPECT_DOUBLE_EQ(value_of(scores, "top1").value(), 2.0 / 3);
  });
}

TEST(TrainMeter, IfOutputsAreEqualTheFirstClassIsTop1) {
  auto meter = classes_meter();
  const auto outputs = torch::tensor({{2.0F, 7.0F, 7.0F}, {2.0F, 7.0F, 7.0F}, {1.0F, 1.0F, 1.0F}});
  meter.add(torch::tensor(0.0F), outputs, labels({1, 2, 0}), 3);
  EXPECT_DOUBLE_EQ(value_of(meter.read(one_process()), "top1").value(), 2.0 / 3);
}

TEST(TrainMeter, OfMixedSamplesTheMostProbableClassIsTheLabel) {
  auto meter = classes_meter();
  const auto targets = torch::tensor({{0.7F, 0.3F, 0.0F}, {0.3F, 0.7F, 0.0F}, {0.0F, 0.0F, 1.0F}, {0.5F, 0.0F, 0.5F}});
  meter.add(torch::tensor(0.0F), ranked_outputs({0, 0, 2, 0}, 3), targets, 4);
  EXPECT_DOUBLE_EQ(value_of(meter.read(one_process()), "top1").value(), 3.0 / 4);
}

TEST(TrainMeter, LossWithoutClasses) {
  auto meter = loss_meter();
  const auto outputs = torch::tensor({{1.0F}, {3.0F}});
  meter.add(torch::nn::functional::mse_loss(outputs, torch::zeros({2, 1})), outputs, torch::zeros({2, 1}), 2);
  const auto scores = meter.read(one_process());
  EXPECT_EQ(loss_of(scores), 5);
  EXPECT_FALSE(value_of(scores, "top1").has_value());
}

TEST(TrainMeter, SumsInFloat64) {
  auto meter = loss_meter();
  // A float32 sum would lose the second loss.
  meter.add(torch::tensor(16777216.0F), {}, {}, 1);
  meter.add(torch::tensor(1.0F), {}, {}, 1);
  EXPECT_EQ(loss_of(meter.read(one_process())), 16777217.0 / 2);
}

TEST(TrainMeter, AddsOutputsThatNeedGradients) {
  auto meter = classes_meter();
  const auto outputs = ranked_outputs({1}, 3).requires_grad_();
  auto loss = torch::nn::functional::cross_entropy(outputs, labels({1}));
  meter.add(loss, outputs, labels({1}), 1);
  loss.backward();
  EXPECT_DOUBLE_EQ(loss_of(meter.read(one_process())), loss.item<double>());
}

TEST(TrainMeter, AnEmptyBatchAddsNothing) {
  auto meter = classes_meter();
  meter.add(torch::tensor(std::numeric_limits<float>::quiet_NaN()), torch::empty({0, 10}), torch::empty({0}, torch::kInt64), 0);
  auto scores = meter.read(one_process());
  EXPECT_EQ(scores.num_samples, 0);
  EXPECT_EQ(loss_of(scores), 0);
  EXPECT_EQ(value_of(scores, "top1"), 0.0);
  meter.add(torch::tensor(2.0F), ranked_outputs({3}, 10), labels({3}), 1);
  scores = meter.read(one_process());
  EXPECT_EQ(loss_of(scores), 2);
  EXPECT_EQ(value_of(scores, "top1"), 1.0);
}

TEST(TrainMeter, ResetClearsTheSums) {
  auto meter = classes_meter();
  meter.add(torch::tensor(2.0F), ranked_outputs({3}, 10), labels({3}), 1);
  EXPECT_EQ(meter.read(one_process()).num_samples, 1);
  meter.reset();
  meter.add(torch::tensor(1.0F), ranked_outputs({3, 3}, 10), labels({4, 9}), 2);
  const auto scores = meter.read(one_process());
  EXPECT_EQ(scores.num_samples, 2);
  EXPECT_EQ(loss_of(scores), 1);
  EXPECT_EQ(value_of(scores, "top1"), 0.0);
}

TEST(TrainMeter, ContinuesFromItsState) {
  auto original = classes_meter();
  original.add(torch::tensor(0.1F), ranked_outputs({3, 1}, 10), labels({3, 2}), 2);
  const auto tree = original.state();
  auto other = classes_meter();
  other.add(torch::tensor(2.0F), ranked_outputs({3}, 10), labels({3}), 1);
  other.load_state(state::View(tree, "a.pt"));
  for (auto* meter : {&original, &other}) meter->add(torch::tensor(0.7F), ranked_outputs({5}, 10), labels({5}), 1);
  EXPECT_EQ(loss_of(other.read(one_process())), loss_of(original.read(one_process())));
  EXPECT_EQ(other.read(one_process()).num_samples, 3);
  EXPECT_EQ(value_of(other.read(one_process()), "top1"), 2.0 / 3);
  // The loaded state does not contain what was added after it was saved.
  other.load_state(state::View(tree, "a.pt"));
  EXPECT_EQ(other.read(one_process()).num_samples, 2);
}

TEST(TrainMeter, RejectsOtherSums) {
  auto meter = classes_meter();
  const state::Tree tree(torch::zeros({4}, torch::kFloat64));
  EXPECT_THAT([&] { meter.load_state(state::View(tree, "a.pt")); },
              ::testing::ThrowsMessage<CheckpointError>("a.pt: is Double[4], but Double[3] is expected"));
}

// Five batches of unequal sizes. The large losses of the first and the last batch make the rounding of a sum depend on its order.
struct ValidationBatch {
  double loss;
  std::vector<int64_t> predicted;
  std::vector<int64_t> actual;
};
const std::vector<ValidationBatch> kBatches = {
    {1.0e16, {0, 1, 2}, {0, 1, 1}}, {1.1, {2, 2}, {2, 0}}, {0.7, {5, 1}, {1, 1}}, {0.3, {0}, {0}}, {-1.0e16, {1, 0, 5}, {1, 2, 5}}};

Measurement validate(const distributed::ProcessGroup& world) {
  const auto meter =
      make_classification(nullptr)->make_validation_meter(torch::kCPU, /*num_classes=*/6, static_cast<int64_t>(kBatches.size()));
  int64_t first_sample = 0;
  for (size_t i = 0; i < kBatches.size(); first_sample += static_cast<int64_t>(kBatches[i].actual.size()), ++i) {
    const auto& batch = kBatches[i];
    const auto size = static_cast<int64_t>(batch.actual.size());
    if (static_cast<int>(i) % world.size() != world.rank()) continue;
    std::vector<int64_t> samples(batch.actual.size());
    std::iota(samples.begin(), samples.end(), first_sample);
    meter->add({.number = static_cast<int64_t>(i), .samples = samples, .size = size}, torch::tensor(batch.loss, torch::kFloat64),
               ranked_outputs(batch.predicted, 6), labels(batch.actual));
  }
  return meter->read(world);
}

TEST(ValidationMeter, CountsClassesAndTheirConfusion) {
  const auto scores = validate(one_process());
  EXPECT_EQ(scores.num_samples, 11);
  EXPECT_DOUBLE_EQ(value_of(scores, "top1").value(), 7.0 / 11);
  // With six ranked classes, only the last one is outside the top 5.
  EXPECT_DOUBLE_EQ(value_of(scores, "top5").value(), 10.0 / 11);
  const std::vector<int64_t> confusion = {2, 0, 1, 0, 0, 0,  //
                                          0, 3, 1, 0, 0, 1,  //
                                          1, 0, 1, 0, 0, 0,  //
                                          0, 0, 0, 0, 0, 0,  //
                                          0, 0, 0, 0, 0, 0,  //
                                          0, 0, 0, 0, 0, 1};
  EXPECT_EQ(scores.classes.confusion, confusion);
  // sklearn.metrics.f1_score(actual, predicted, average="macro"): classes 3 and 4 do not occur.
  EXPECT_DOUBLE_EQ(value_of(scores, "macro_f1").value(), (4.0 / 6 + 6.0 / 8 + 2.0 / 5 + 2.0 / 3) / 4);
}

TEST(ValidationMeter, HasTheSameDigitsForAnyNumberOfRanks) {
  const auto one = validate(one_process());
  for (const int world_size : {2, 3, 4, 7}) {
    testing::run_ranks(world_size, [&](distributed::ProcessGroups& groups) {
      const auto scores = validate(*groups.world());
      EXPECT_EQ(loss_of(scores), loss_of(one));
      EXPECT_EQ(scores.num_samples, one.num_samples);
      EXPECT_EQ(value_of(scores, "top1"), value_of(one, "top1"));
      EXPECT_EQ(value_of(scores, "top5"), value_of(one, "top5"));
      EXPECT_EQ(scores.classes.confusion, one.classes.confusion);
      EXPECT_EQ(value_of(scores, "macro_f1"), value_of(one, "macro_f1"));
      EXPECT_EQ(value_of(scores, "calibration_error"), value_of(one, "calibration_error"));
      EXPECT_EQ(scores.classes.mistakes, one.classes.mistakes);
    });
  }
}

TEST(ValidationMeter, WithoutClasses) {
  ValidationMeter meter(torch::kCPU, 2);
  meter.add({.number = 0, .size = 3}, torch::tensor(1.0), torch::ones({3, 2}), torch::ones({3, 2}));
  meter.add({.number = 1, .size = 1}, torch::tensor(5.0), torch::ones({1, 2}), torch::ones({1, 2}));
  const auto scores = meter.read(one_process());
  EXPECT_DOUBLE_EQ(loss_of(scores), 2);
  EXPECT_FALSE(value_of(scores, "top1").has_value());
  EXPECT_FALSE(value_of(scores, "macro_f1").has_value());
  EXPECT_TRUE(scores.classes.calibration.empty());
  EXPECT_TRUE(scores.classes.confusion.empty());
}

TEST(ValidationMeter, OmitsMetricsThatNeedMoreClasses) {
  const auto meter = make_classification(nullptr)->make_validation_meter(torch::kCPU, /*num_classes=*/4, 1);
  meter->add({.number = 0, .size = 2}, torch::tensor(1.0), ranked_outputs({1, 2}, 4), labels({1, 3}));
  const auto scores = meter->read(one_process());
  EXPECT_DOUBLE_EQ(value_of(scores, "top1").value(), 0.5);
  EXPECT_FALSE(value_of(scores, "top5").has_value());
}

}  // namespace
}  // namespace trainer::task
