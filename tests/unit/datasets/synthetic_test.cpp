#include "datasets/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "trainer/error.h"

namespace trainer::datasets::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> values_of(const data::Dataset& dataset, int64_t index) {
  data::Scratch scratch;
  const auto sample = dataset.read(index, scratch);
  return {sample.values.begin(), sample.values.end()};
}

std::vector<float> targets_of(const data::Dataset& dataset, int64_t index) {
  data::Scratch scratch;
  const auto sample = dataset.read(index, scratch);
  return {sample.target.values.begin(), sample.target.values.end()};
}

std::vector<int64_t> labels_of(const data::Dataset& dataset) {
  std::vector<int64_t> labels;
  data::Scratch scratch;
  for (int64_t index = 0; index < dataset.size(); ++index) labels.push_back(dataset.read(index, scratch).target.label);
  return labels;
}

// Expects mean 0 and variance 1 within five standard errors, and values within the bounds of the uniform distribution with this mean and
// variance.
void expect_unit_uniform(const std::vector<float>& values) {
  double sum = 0;
  double sum_of_squares = 0;
  for (const float value : values) {
    ASSERT_LE(std::abs(value), std::sqrt(3.0F));
    sum += value;
    sum_of_squares += value * value;
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0.0, 5.0 / std::sqrt(count));
  EXPECT_NEAR(sum_of_squares / count, 1.0, 5.0 * std::sqrt(0.8 / count));
}

TEST(Synthetic, DefaultsAreCifarsShape) {
  const SyntheticOptions options;
  const auto train = open_synthetic(options, data::Split::kTrain);
  EXPECT_EQ(train->size(), 1024);
  EXPECT_EQ(open_synthetic(options, data::Split::kValidation)->size(), 256);
  EXPECT_THAT(train->info().shape, ElementsAre(3, 32, 32));
  EXPECT_EQ(train->info().num_classes, 10);
  EXPECT_FALSE(train->info().is_image);
  EXPECT_EQ(values_of(*train, 0).size(), 3072U);
  EXPECT_TRUE(targets_of(*train, 0).empty());
}

TEST(Synthetic, ValuesAreUniformWithUnitVariance) {
  const auto dataset = open_synthetic({}, data::Split::kTrain);
  std::vector<float> all;
  for (int64_t index = 0; index < 64; ++index) {
    const auto values = values_of(*dataset, index);
    all.insert(all.end(), values.begin(), values.end());
  }
  expect_unit_uniform(all);
  // Neighbours in a sample are independent: their products have mean 0 and variance 1.
  double product = 0;
  for (size_t i = 0; i + 1 < all.size(); ++i) product += all[i] * all[i + 1];
  EXPECT_NEAR(product / static_cast<double>(all.size()), 0.0, 5.0 / std::sqrt(static_cast<double>(all.size())));
}

TEST(Synthetic, ASampleIsTheSameAtEveryRead) {
  const auto dataset = open_synthetic({}, data::Split::kTrain);
  const auto again = open_synthetic({}, data::Split::kTrain);
  const auto late = values_of(*dataset, 700);
  EXPECT_NE(values_of(*dataset, 3), late);
  EXPECT_EQ(values_of(*again, 700), late);
  EXPECT_EQ(labels_of(*dataset), labels_of(*again));
}

TEST(Synthetic, SamplesDiffer) {
  SyntheticOptions options;
  options.shape = {3};
  std::set<std::vector<float>> distinct;
  for (const auto split : {data::Split::kTrain, data::Split::kValidation}) {
    const auto dataset = open_synthetic(options, split);
    for (int64_t index = 0; index < dataset->size(); ++index) distinct.insert(values_of(*dataset, index));
  }
  EXPECT_EQ(distinct.size(), 1024U + 256U);
}

TEST(Synthetic, AnotherSeedGivesOtherSamples) {
  SyntheticOptions options;
  const auto dataset = open_synthetic(options, data::Split::kTrain);
  options.seed = 1;
  const auto other = open_synthetic(options, data::Split::kTrain);
  EXPECT_NE(values_of(*dataset, 0), values_of(*other, 0));
  EXPECT_NE(labels_of(*dataset), labels_of(*other));
}

TEST(Synthetic, RandomLabelsUseEveryClassAboutAsOften) {
  SyntheticOptions options;
  options.num_train = 10000;
  options.shape = {1};
  std::vector<int> counts(10);
  for (const auto label : labels_of(*open_synthetic(options, data::Split::kTrain))) ++counts.at(static_cast<size_t>(label));
  EXPECT_THAT(counts, ::testing::Each(::testing::AllOf(::testing::Gt(850), ::testing::Lt(1150))));
}

TEST(Synthetic, LabelsDoNotDependOnTheShape) {
  SyntheticOptions options;
  const auto images = labels_of(*open_synthetic(options, data::Split::kTrain));
  options.shape = {1};
  EXPECT_EQ(labels_of(*open_synthetic(options, data::Split::kTrain)), images);
}

TEST(Synthetic, ZeroLabels) {
  SyntheticOptions options;
  options.labels = SyntheticLabels::kZero;
  EXPECT_THAT(labels_of(*open_synthetic(options, data::Split::kTrain)), ::testing::Each(0));
}

TEST(Synthetic, WithoutClassesTargetsAreRandomNumbers) {
  SyntheticOptions options;
  options.shape = {7};
  options.num_classes = 0;
  options.num_targets = 5;
  const auto dataset = open_synthetic(options, data::Split::kTrain);
  EXPECT_EQ(dataset->info().num_classes, 0);
  EXPECT_EQ(dataset->info().num_targets, 5);
  std::vector<float> all;
  for (int64_t index = 0; index < dataset->size(); ++index) {
    ASSERT_EQ(values_of(*dataset, index).size(), 7U);
    const auto targets = targets_of(*dataset, index);
    ASSERT_EQ(targets.size(), 5U);
    all.insert(all.end(), targets.begin(), targets.end());
  }
  expect_unit_uniform(all);
}

TEST(Synthetic, TargetsAreNotTheValues) {
  SyntheticOptions options;
  options.shape = {4};
  options.num_classes = 0;
  options.num_targets = 4;
  const auto dataset = open_synthetic(options, data::Split::kTrain);
  EXPECT_NE(values_of(*dataset, 0), targets_of(*dataset, 0));
}

TEST(Synthetic, AScratchBufferServesSamplesOfAnySize) {
  SyntheticOptions small;
  small.shape = {2};
  const auto few = open_synthetic(small, data::Split::kTrain);
  const auto many = open_synthetic({}, data::Split::kTrain);
  data::Scratch scratch;
  EXPECT_EQ(many->read(1, scratch).values.size(), 3072U);
  EXPECT_EQ(few->read(1, scratch).values.size(), 2U);
  EXPECT_EQ(many->read(1, scratch).values.size(), 3072U);
}

}  // namespace
}  // namespace trainer::datasets::test
