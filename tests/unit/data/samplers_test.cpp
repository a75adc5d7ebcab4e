#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "data/sharded_sampler.h"
#include "tests/testing/temporary_folder.h"
#include "tests/unit/data/sampler_cases.h"

namespace trainer::data {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A file of weights; `weighted` has the YAML of a sampler that reads it.
class WeightsFile {
 public:
  explicit WeightsFile(const std::string& text) { std::ofstream(path()) << text; }
  std::string path() const { return (folder_.path() / "weights.txt").string(); }
  std::string weighted(const std::string& others = "") const { return fmt::format("{{name: weighted, weights: {}{}}}", path(), others); }

 private:
  trainer::testing::TemporaryFolder folder_;
};

TEST(Samplers, WeightedGivesPythonsLists) {
  for (const auto& each : golden_orders("weighted")) {
    std::string text;
    const int64_t num_weights = each.at("num_weights");
    for (int64_t i = 0; i < num_weights; ++i) text += fmt::format("{}\n", static_cast<double>(i * 7 % 11) / 8);
    const WeightsFile file(text);
    const auto sampler = make_sampler(file.weighted(fmt::format(", num_samples: {}, replacement: {}", each.at("num_samples").get<int64_t>(),
                                                                each.at("replacement").get<bool>())),
                                      LabelledSamples(num_weights), each.at("seed"));
    EXPECT_EQ(sampler.num_samples, each.at("num_samples").get<int64_t>());
    EXPECT_EQ(sampler.repeats, each.at("replacement").get<bool>());
    expect_golden(sampler.order(each.at("epoch")), each, 0);
  }
}

TEST(Samplers, RepeatedAugmentationGivesPythonsLists) {
  for (const auto& each : golden_orders("repeated")) {
    const int world_size = each.at("world_size");
    for (int rank = 0; rank < world_size; ++rank) {
      ShardedSampler sampler(make_sampler(fmt::format("{{name: repeated_augmentation, repeats: {}}}", each.at("repeats").get<int64_t>()),
                                          LabelledSamples(each.at("size").get<int64_t>()), each.at("seed")),
                             {.rank = rank, .world_size = world_size, .shards = data::Shards::kDrop});
      sampler.set_epoch(each.at("epoch"));
      expect_golden(sampler.samples().indices, each, rank);
    }
  }
  // Of a data set of fewer than 256 samples, Python's sampler takes none; the program's takes all.
  EXPECT_EQ(make_sampler("{name: repeated_augmentation}", LabelledSamples(255)).num_samples, 255);
}

TEST(Samplers, WeightsAreThoseOfTheFilesBeforeAPartIsHeldOut) {
  const auto all = std::make_shared<LabelledSamples>(6);
  const auto& files = *all;
  const Subset part(all, {1, 3, 4});
  const WeightsFile file("9\n0\n9\r\n0\n2\n9\n");
  for (const int64_t index : make_sampler(file.weighted(", num_samples: 20"), files, 0, &part).order(0)) EXPECT_EQ(index, 2);
  EXPECT_EQ(make_sampler(file.weighted(), files, 0, &part).num_samples, 3);
  EXPECT_EQ(part.origin(1).key, all->origin(3).key);
}

TEST(Samplers, AByteOrderMarkIsNoWeight) {
  const WeightsFile file("\ufeff1\n0\n2\n");
  EXPECT_EQ(make_sampler(file.weighted(), LabelledSamples(3)).num_samples, 3);
}

TEST(Samplers, WeightsThatCannotBeUsedAreRefused) {
  const LabelledSamples three(3);
  const auto expect = [&](const std::string& text, const std::string& message, const std::string& others = "") {
    const WeightsFile file(text);
    EXPECT_THAT([&] { make_sampler(file.weighted(others), three); }, ThrowsMessage<Error>(fmt::format(fmt::runtime(message), file.path())));
  };
  for (const std::string line : {"x", "", "-1", "inf", "nan", "1 2", "1e999"}) {
    expect("1\n" + line + "\n3\n", "{}: line 2 has \"" + line + "\"; write one finite number >= 0 in each line");
  }
  expect("1\n2", "{}: it has 2 lines, but the training set has 3 images; write one line per image, in the order of the files");
  expect("1\n2\n3\n4\n", "{}: it has 4 lines, but the training set has 3 images; write one line per image, in the order of the files");
  expect("0\n0\n0\n", "{}: the weights of the training images add up to 0; write at least one weight greater than 0");
  expect("1e308\n1e308\n1e308\n", "{}: the weights of the training images add up to inf; write smaller weights");
  expect("1\n0\n1\n",
         "num_samples: 3 samples cannot be drawn without replacement, because only 2 have a weight other than 0; choose at most 2, or set "
         "replacement: true",
         ", replacement: false");
  EXPECT_THAT(
      [&] { make_sampler("{name: weighted, weights: /no/such/file}", three); },
      ThrowsMessage<DataError>("cannot read /no/such/file: No such file or directory; set weights to a file with one weight per line"));
}

TEST(Samplers, TooManyWeightsAreRefused) {
  struct Huge : LabelledSamples {
    Huge() : LabelledSamples(0) {}
    int64_t size() const override { return (int64_t{1} << 24) + 1; }
  };
  for (const char* sampler : {"{name: class_balanced}", "{name: weighted, weights: unread.txt}"}) {
    EXPECT_THAT([&] { make_sampler(sampler, Huge()); },
                ThrowsMessage<UsageError>(
                    "name: the training set has 16777217 samples, but this sampler supports at most 16777216; choose a different sampler"));
  }
}

TEST(Samplers, ClassBalancedDrawsClassesEquallyOftenAndSamplesOfAClassToo) {
  // 600 samples of class 0, 300 of class 2, 100 of class 1.
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 1000; ++i) labels.push_back(i % 10 == 0 ? 1 : i % 10 < 4 ? 2 : 0);
  const auto sampler = make_sampler("{name: class_balanced, num_samples: 90000}", LabelledSamples(labels), 1);
  const auto order = sampler.order(0);
  ASSERT_EQ(order.size(), 90000U);
  std::map<int64_t, double> of_class, of_sample;
  for (const int64_t index : order) {
    ++of_class[labels[static_cast<size_t>(index)]];
    if (labels[static_cast<size_t>(index)] == 1) ++of_sample[index];
  }
  // Four standard deviations of a binomial distribution.
  for (const auto& [label, count] : of_class) EXPECT_NEAR(count, 30000, 4 * std::sqrt(90000.0 / 3 * 2 / 3)) << label;
  EXPECT_EQ(of_sample.size(), 100U);
  for (const auto& [index, count] : of_sample) EXPECT_NEAR(count, 300, 5 * std::sqrt(300.0)) << index;
  EXPECT_NE(order, sampler.order(1));
}

TEST(Samplers, ClassBalancedNeedsLabelsOfTheClasses) {
  EXPECT_THAT(
      [] {
        make_sampler("{name: class_balanced}", LabelledSamples({0, 1, 3}));
      },
      ThrowsMessage<DataError>("sample 2: its label is 3, but labels must be in the range 0 to 2"));
  EXPECT_EQ(make_sampler("{name: class_balanced}", LabelledSamples({0, 1, 2})).num_samples, 3);
}

TEST(Samplers, SubsetIsTheSameInEachEpoch) {
  const LabelledSamples hundred(100);
  const auto chosen_by = [&](const std::string& yaml, uint64_t seed) {
    const auto sampler = make_sampler(yaml, hundred, seed);
    const auto order = sampler.order(0);
    const auto next = sampler.order(1);
    EXPECT_NE(order, next);
    EXPECT_FALSE(std::ranges::is_sorted(order));
    const std::set<int64_t> chosen(order.begin(), order.end());
    EXPECT_EQ(std::set<int64_t>(next.begin(), next.end()), chosen);
    EXPECT_EQ(static_cast<int64_t>(chosen.size()), sampler.num_samples);
    return chosen;
  };
  const auto quarter = chosen_by("{name: subset, fraction: 0.25}", 4);
  EXPECT_EQ(quarter.size(), 25U);
  EXPECT_EQ(chosen_by("{name: subset, count: 25}", 4), quarter);
  EXPECT_NE(chosen_by("{name: subset, count: 25}", 5), quarter);
  const auto half = chosen_by("{name: subset, fraction: 0.5}", 4);
  EXPECT_TRUE(std::ranges::includes(half, quarter));
  EXPECT_EQ(chosen_by("{name: subset, fraction: 1}", 4).size(), 100U);
}

TEST(Samplers, SubsetsThatCannotBeChosenAreRefused) {
  const LabelledSamples ten(10);
  const auto expect = [&](const std::string& options, const std::string& message) {
    EXPECT_THAT([&] { make_sampler("{name: subset" + options + "}", ten); }, ThrowsMessage<UsageError>(HasSubstr(message)));
  };
  expect("", "fraction: missing; give this or dataloader.sampler.count");
  expect(", fraction: 0.5, count: 3", "count: given together with dataloader.sampler.fraction; keep one of them");
  expect(", count: 11", "count: 11 is too large, because the training set has only 10 images; choose a smaller number");
  expect(", fraction: 0.01", "fraction: 0.01 of 10 images is less than one image; choose a larger fraction");
}

}  // namespace
}  // namespace trainer::data
