#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/data_loader.h"
#include "data/dataset.h"
#include "tests/unit/data/counting_images.h"
#include "trainer/error.h"

namespace trainer::data {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(DataLoaderErrors, AReadErrorIsThrownInPlaceOfItsBatchAndNamesTheSample) {
  CountingImages dataset(20);
  dataset.fail_at = {13};
  const auto pipeline = augmenting_pipeline(dataset.info());
  for (const int64_t num_workers : {0, 1, 3}) {
    DataLoader loader(dataset, pipeline, {.batch_size = 5, .num_workers = num_workers});
    loader.start_epoch(0, first_indices(20));
    EXPECT_NE(loader.next(), nullptr);
    EXPECT_NE(loader.next(), nullptr);
    for (int call = 0; call < 2; ++call) {
      EXPECT_THAT([&] { loader.next(); }, ThrowsMessage<DataError>("sample 13: the file is damaged")) << num_workers;
    }
    loader.start_epoch(1, {1, 2});
    EXPECT_TRUE(torch::equal(joined_labels(load_all(loader)), torch::tensor({1, 2})));
  }
}

TEST(DataLoaderErrors, ALabelOutsideTheClassesIsRefused) {
  CountingImages dataset(5);
  const auto pipeline = augmenting_pipeline(dataset.info());
  DataLoader loader(dataset, pipeline, {.batch_size = 5});
  dataset.label_offset = 997;
  loader.start_epoch(0, first_indices(5));
  EXPECT_THAT([&] { loader.next(); }, ThrowsMessage<DataError>("sample 3: its label is 1000, but labels must be in the range 0 to 999"));
  dataset.label_offset = -1;
  EXPECT_THAT([&] { loader.next(); }, ThrowsMessage<DataError>(HasSubstr("sample 0: its label is -1")));
}

TEST(DataLoaderErrors, SamplesThatCannotBeReadAreSkipped) {
  CountingImages dataset(20);
  const auto pipeline = augmenting_pipeline(dataset.info());
  DataLoader all(dataset, pipeline, {.batch_size = 5});
  all.start_epoch(0, first_indices(20));
  const auto expected = load_all(all);
  dataset.fail_at = {0, 7, 13, 14};
  for (const int64_t num_workers : {0, 1, 3}) {
    std::vector<std::string> skipped;
    DataLoader loader(dataset, pipeline, {.batch_size = 5, .num_workers = num_workers, .report_skipped = [&](const std::string& text) {
                                            skipped.push_back(text);
                                          }});
    for (int round = 0; round < 2; ++round) {
      loader.start_epoch(0, first_indices(20));
      const auto epoch = load_all(loader);
      EXPECT_EQ(epoch.positions, (std::vector<std::vector<int64_t>>{{1, 2, 3, 4}, {0, 1, 3, 4}, {0, 1, 2}, {0, 1, 2, 3, 4}}));
      EXPECT_TRUE(torch::equal(joined_labels(epoch), torch::tensor({1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 15, 16, 17, 18, 19})));
      ASSERT_EQ(epoch.images.size(), 4U);
      EXPECT_TRUE(torch::equal(epoch.images[0], expected.images[0].slice(0, 1)));
      EXPECT_EQ(epoch.images[2].size(0), 3);
      // Each unreadable sample is reported once.
      EXPECT_EQ(skipped, (std::vector<std::string>{"sample 0: the file is damaged", "sample 7: the file is damaged",
                                                   "sample 13: the file is damaged", "sample 14: the file is damaged"}));
    }
  }
}

TEST(DataLoaderErrors, ALargerBatchWithoutReadableSamplesIsAnError) {
  CountingImages dataset(20);
  const auto pipeline = augmenting_pipeline(dataset.info());
  for (int64_t index = 0; index < 20; ++index) dataset.fail_at.insert(index);
  const auto ignore = [](const std::string&) {};
  DataLoader small(dataset, pipeline, {.batch_size = 7, .report_skipped = ignore});
  small.start_epoch(0, first_indices(7));
  EXPECT_EQ(small.next()->size, 0);
  DataLoader large(dataset, pipeline, {.batch_size = 8, .report_skipped = ignore});
  large.start_epoch(0, first_indices(8));
  EXPECT_THAT([&] { large.next(); }, ThrowsMessage<DataError>("none of the 8 samples of a batch can be read; check whether the data set's "
                                                              "files are accessible; the first error is: sample 0: the file is damaged"));
}

TEST(DataLoaderErrors, RefusesIndicesThatTheDataSetDoesNotHave) {
  const CountingImages dataset(10);
  const auto pipeline = augmenting_pipeline(dataset.info());
  DataLoader loader(dataset, pipeline, {});
  EXPECT_ANY_THROW(loader.start_epoch(0, {3, 10}));
  EXPECT_ANY_THROW(loader.start_epoch(0, {-1}));
}

TEST(UnreadableSamples, AreListedInOrderForAnyNumberOfThreads) {
  CountingImages dataset(30);
  dataset.fail_at = {3, 17, 29};
  dataset.label_offset = 975;  // the labels of samples 25 to 29 are outside the 1,000 classes
  for (const int num_threads : {1, 4}) {
    std::vector<std::string> found;
    for (const auto& sample : find_unreadable_samples(dataset, num_threads, [](int64_t) { return true; })) {
      found.push_back(fmt::format("{} {}", sample.index, sample.reason));
    }
    EXPECT_THAT(found, ::testing::ElementsAre("3 the file is damaged", "17 the file is damaged",
                                              "25 its label is 1000, but labels must be in the range 0 to 999", HasSubstr("26 its label"),
                                              HasSubstr("27 its label"), HasSubstr("28 its label"), "29 the file is damaged"));
  }
}

}  // namespace
}  // namespace trainer::data
