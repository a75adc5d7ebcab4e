#include "run/session/split_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "config/yaml.h"
#include "run/session/check.h"

namespace trainer::session {
namespace {

using ::testing::ElementsAre;

// Labels of classes of these sizes, mixed.
std::vector<int64_t> labels_of(std::vector<int64_t> sizes) {
  std::vector<int64_t> labels;
  while (std::ranges::any_of(sizes, [](int64_t size) { return size > 0; })) {
    for (size_t label = 0; label < sizes.size(); ++label) {
      if (sizes[label]-- > 0) labels.push_back(static_cast<int64_t>(label));
    }
  }
  return labels;
}

// How many samples of each class are held out.
std::vector<int64_t> counts_of(const std::vector<int64_t>& sizes, int64_t count, uint64_t seed = 1) {
  const auto labels = labels_of(sizes);
  const auto [held_out, rest] = split_by_class(labels, count, seed);
  EXPECT_TRUE(std::ranges::is_sorted(held_out) && std::ranges::is_sorted(rest));
  auto all = held_out;
  all.insert(all.end(), rest.begin(), rest.end());
  std::ranges::sort(all);
  EXPECT_EQ(all, indices_up_to(static_cast<int64_t>(labels.size())));
  std::vector<int64_t> counts(sizes.size());
  for (const auto index : held_out) ++counts[static_cast<size_t>(labels[static_cast<size_t>(index)])];
  return counts;
}

TEST(SplitByClass, EachClassGivesItsShare) {
  EXPECT_THAT(counts_of({302, 182, 80, 40}, 60), ElementsAre(30, 18, 8, 4));
  EXPECT_THAT(counts_of({10, 10, 10}, 15), ElementsAre(5, 5, 5));
  EXPECT_THAT(counts_of({96, 14}, 11), ElementsAre(10, 1)) << "9.6 and 1.4: the sum is that of the fraction";
}

TEST(SplitByClass, AClassKeepsASampleForTraining) {
  EXPECT_THAT(counts_of({1, 99, 1}, 50), ElementsAre(0, 50, 0));
  EXPECT_THAT(counts_of({2, 2}, 4), ElementsAre(1, 1));
  EXPECT_THAT(counts_of({1, 1, 1, 3}, 4), ElementsAre(0, 0, 0, 2));
}

TEST(SplitByClass, TheSeedDecides) {
  const auto labels = labels_of({50, 50});
  EXPECT_EQ(split_by_class(labels, 10, 7), split_by_class(labels, 10, 7));
  EXPECT_NE(split_by_class(labels, 10, 7), split_by_class(labels, 10, 8));
  // Of a hundred classes with half a sample each, it is not always the first that give one.
  const std::vector<int64_t> sizes(100, 5);
  EXPECT_NE(counts_of(sizes, 50, 1), counts_of(sizes, 50, 2));
}

TEST(SplitByClass, RunsWithoutItsKeyKeepTheirSplit) {
  const auto is_stratified = [](double part, const std::string& dataset_keys) {
    config::Experiment experiment;
    experiment.dataset.validation_split.value = part;
    experiment.tree = config::parse_yaml("dataset: {" + dataset_keys + "}", "config.yaml");
    adapt_to_earlier_version(experiment);
    return experiment.dataset.stratify;
  };
  EXPECT_FALSE(is_stratified(0.1, "name: synthetic"));
  EXPECT_TRUE(is_stratified(0, "name: synthetic"));
  EXPECT_TRUE(is_stratified(0.1, "stratify: true"));
  // As it was written before there was the key.
  const auto labels = labels_of({6, 4});
  EXPECT_THAT(split_samples(indices_up_to(10), 3, 42).first, ElementsAre(1, 6, 7));
}

}  // namespace
}  // namespace trainer::session
