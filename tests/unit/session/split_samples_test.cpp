#include "run/samples/split_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "config/yaml.h"
#include "run/recipe/check.h"

namespace trainer::samples {
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

// Returns how many samples of each class are held out.
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
  EXPECT_THAT(counts_of({96, 14}, 11), ElementsAre(10, 1)) << "the shares 9.6 and 1.4 are rounded so that their sum stays 11";
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
  // If each of a hundred classes should give half a sample, the classes that give one depend on the seed.
  const std::vector<int64_t> sizes(100, 5);
  EXPECT_NE(counts_of(sizes, 50, 1), counts_of(sizes, 50, 2));
}

TEST(SplitByClass, WithoutClassesTheSeedDecidesAlone) { EXPECT_THAT(split_samples(indices_up_to(10), 3, 42).first, ElementsAre(1, 6, 7)); }

using data::Split;

std::vector<std::string> names_up_to(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("part_" + std::to_string(i));
  return names;
}

double count_of(const std::vector<Split>& parts, Split part) { return static_cast<double>(std::ranges::count(parts, part)); }

TEST(Divide, ByTheHashOfNamesAlone) {
  const auto names = names_up_to(10000);
  const config::SplitSection options{.validation = 0.2, .test = 0.1};
  const auto parts = divide(names, {}, options);
  EXPECT_NEAR(count_of(parts, Split::kValidation), 2000, 150);
  EXPECT_NEAR(count_of(parts, Split::kTest), 1000, 110);
  // A sample's part does not depend on the other samples or their order.
  auto fewer = names;
  fewer.resize(100);
  std::ranges::reverse(fewer);
  const auto of_fewer = divide(fewer, {}, options);
  for (size_t i = 0; i < fewer.size(); ++i) EXPECT_EQ(of_fewer[i], parts[99 - i]) << fewer[i];
  // Without a test part, its samples go to the other two parts, and no sample moves between these.
  const auto without_test = divide(names, {}, {.validation = 0.2 / 0.9, .test = 0});
  for (size_t i = 0; i < names.size(); ++i) {
    if (parts[i] != Split::kTest) {
      EXPECT_EQ(without_test[i], parts[i]);
    }
  }
  EXPECT_NE(divide(names, {}, {.validation = 0.2, .test = 0.1, .seed = 1}), parts);
}

TEST(Divide, GroupsStayTogether) {
  std::vector<std::string> groups;
  for (int i = 0; i < 3000; ++i) groups.push_back("patient_" + std::to_string(i / 7));
  const auto parts = divide(groups, {}, {});
  for (size_t i = 1; i < groups.size(); ++i) {
    if (groups[i] == groups[i - 1]) {
      EXPECT_EQ(parts[i], parts[i - 1]);
    }
  }
}

TEST(Divide, FoldsAreAPartition) {
  const auto names = names_up_to(1000);
  const auto labels = labels_of({700, 300});
  for (const bool is_stratified : {false, true}) {
    std::vector<int> times(names.size());
    for (int64_t fold = 0; fold < 5; ++fold) {
      const auto parts = divide(names, is_stratified ? labels : std::vector<int64_t>(), {.test = 0.1, .folds = 5, .fold = fold});
      for (size_t i = 0; i < parts.size(); ++i) times[i] += parts[i] == Split::kValidation ? 1 : parts[i] == Split::kTest ? 10 : 0;
      EXPECT_NEAR(count_of(parts, Split::kValidation), 180, is_stratified ? 2 : 50);
    }
    for (const auto count : times) EXPECT_TRUE(count == 1 || count == 50) << count;
  }
}

TEST(Divide, ExactPartsOfEachClass) {
  const auto labels = labels_of({200, 50, 1, 4});
  const auto parts = divide(names_up_to(255), labels, {.validation = 0.2, .test = 0.1, .stratify = true});
  const auto counts_in = [&](Split part) {
    std::vector<int64_t> counts(4);
    for (size_t i = 0; i < parts.size(); ++i) counts[static_cast<size_t>(labels[i])] += parts[i] == part ? 1 : 0;
    return counts;
  };
  EXPECT_THAT(counts_in(Split::kTest), ElementsAre(20, 5, 0, 0));
  EXPECT_THAT(counts_in(Split::kValidation), ElementsAre(40, 10, 0, 1));
}

class Files : public data::Dataset {
 public:
  explicit Files(std::vector<std::string> keys) : keys_(std::move(keys)) {}
  const data::DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return static_cast<int64_t>(keys_.size()); }
  data::Sample read(int64_t, data::Scratch&) const override { throw std::logic_error("the summary reads no samples"); }
  data::SampleOrigin origin(int64_t index) const override { return {.key = keys_[static_cast<size_t>(index)]}; }

 private:
  data::DatasetInfo info_{.shape = {3, 8, 8}, .num_classes = 2};
  std::vector<std::string> keys_;
};

TEST(SummaryOfSamples, DependsOnTheirKeysAndOrder) {
  const auto summary = summary_of(Files({"a.png", "b.png"}));
  EXPECT_THAT(summary, ::testing::MatchesRegex("2 samples, digest [0-9a-f]+"));
  EXPECT_EQ(summary_of(Files({"a.png", "b.png"})), summary);
  EXPECT_NE(summary_of(Files({"a.png", "c.png"})), summary);
  EXPECT_NE(summary_of(Files({"b.png", "a.png"})), summary);
  EXPECT_NE(summary_of(Files({"a.png"})), summary);
}

}  // namespace
}  // namespace trainer::samples
