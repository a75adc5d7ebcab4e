#include "data/data_loader.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <map>
#include <thread>

#include "tests/testing/read_component.h"
#include "tests/unit/data/counting_images.h"
#include "trainer/torch.h"

namespace trainer::data {
namespace {

// Records the calls of prefetch() and read() in order. For one thread only.
class RecordingImages : public CountingImages {
 public:
  using CountingImages::CountingImages;
  Sample read(int64_t index, Scratch& scratch) const override {
    calls.push_back("read " + std::to_string(index));
    return CountingImages::read(index, scratch);
  }
  void prefetch(int64_t index) const override { calls.push_back("prefetch " + std::to_string(index)); }

  mutable std::vector<std::string> calls;
};

// Sample i has the values i, i + 0.5 and the targets -i, 2 i, 1.7e9 + 1 / 3, of which float32 would keep only 1.7e9.
class LinearSamples : public Dataset {
 public:
  const DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return 10; }
  Sample read(int64_t index, Scratch& scratch) const override {
    const auto i = static_cast<float>(index);
    scratch.values = {i, i + 0.5F};
    scratch.targets = {-i, 2 * i, 1.7e9 + 1.0 / 3};
    return {.values = scratch.values, .target = {.values = scratch.targets}};
  }

 private:
  DatasetInfo info_{.shape = {2}, .is_image = false, .num_classes = 0, .num_targets = 3};
};

// A device that copies nothing until the host waits for its event.
struct LazyDevice {
  struct Event final : CopyEvent {
    explicit Event(LazyDevice& device) : device_(device) {}
    void record() override { is_pending = true; }
    void wait() override {
      if (is_pending) ++device_.num_waits;
      is_pending = false;
    }
    bool is_pending = false;

   private:
    LazyDevice& device_;
  };
  int num_waits = 0;
};

TEST(DataLoader, ABatchIsNotOverwrittenBeforeItIsCopied) {
  const CountingImages dataset(60);
  const auto pipeline = augmenting_pipeline(dataset.info());
  const LoaderOptions plain{.batch_size = 4, .seed = 3};
  DataLoader reference(dataset, pipeline, plain);
  for (const int64_t num_workers : {0, 3}) {
    LazyDevice device;
    auto options = plain;
    options.num_workers = num_workers;
    options.prefetch = 2;
    options.make_copy_event = [&] { return std::make_unique<LazyDevice::Event>(device); };
    DataLoader loader(dataset, pipeline, options);
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      std::vector<int64_t> indices(60);
      std::iota(indices.begin(), indices.end(), 0);
      reference.start_epoch(epoch, indices);
      loader.start_epoch(epoch, indices);
      const auto expected = load_all(reference);
      // The images that the device has yet to copy.
      std::deque<torch::Tensor> pending;
      for (size_t number = 0; const auto* batch = loader.next(); ++number) {
        batch->copied->record();
        pending.push_back(batch->images);
        // Gives workers the time to write to batches that they must not change.
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        for (size_t i = 0; i < pending.size(); ++i) {
          EXPECT_TRUE(pending[i].equal(expected.images[number + 1 - pending.size() + i])) << num_workers << " workers, batch " << number;
        }
        if (pending.size() == 2) pending.pop_front();
      }
      EXPECT_EQ(device.num_waits, 15 * epoch + 14) << "the loader waits for the copies of all batches but the last";
    }
  }
}

TEST(DataLoader, EachOccurrenceIsAugmentedDifferently) {
  const CountingImages dataset(5);
  const auto pipeline = augmenting_pipeline(dataset.info());
  const auto load = [&](const SampleList& samples, int64_t num_workers) {
    DataLoader loader(dataset, pipeline, {.batch_size = 40, .num_workers = num_workers, .seed = 1});
    loader.start_epoch(/*epoch=*/2, samples, {static_cast<int64_t>(samples.size())});
    return load_all(loader).images[0];
  };
  SampleList samples(std::vector<int64_t>(40, 3));
  const auto first = load(samples, 0);
  for (int64_t i = 1; i < 40; ++i) EXPECT_TRUE(first[i].equal(first[0]));
  for (uint32_t i = 0; i < 40; ++i) samples.occurrences.push_back(i);
  const auto all = load(samples, 0);
  EXPECT_TRUE(all[0].equal(first[0]));
  int num_equal = 0;
  for (int64_t i = 1; i < 40; ++i) num_equal += all[i].equal(all[0]) ? 1 : 0;
  // There are 50 equally likely results: 5 x 5 places, mirrored or not.
  EXPECT_LE(num_equal, 6);
  EXPECT_TRUE(load(samples, 3).equal(all));
}

TEST(DataLoader, ResultsDependOnSeedEpochAndIndexOnly) {
  const CountingImages dataset(50);
  const auto pipeline = augmenting_pipeline(dataset.info());
  const auto load = [&](int64_t batch_size, int64_t num_workers, int64_t prefetch, uint64_t seed, int64_t epoch,
                        std::vector<int64_t> indices) {
    DataLoader loader(dataset, pipeline, {.batch_size = batch_size, .num_workers = num_workers, .prefetch = prefetch, .seed = seed});
    loader.start_epoch(epoch, std::move(indices));
    return torch::cat(load_all(loader).images);
  };
  const auto reference = load(4, 0, 4, 1, 2, first_indices(50));
  for (const int64_t num_workers : {0, 1, 3}) {
    for (const int64_t prefetch : {1, 2, 100}) {
      EXPECT_TRUE(torch::equal(load(4, num_workers, prefetch, 1, 2, first_indices(50)), reference)) << num_workers << ", " << prefetch;
    }
  }
  EXPECT_TRUE(torch::equal(load(7, 2, 2, 1, 2, first_indices(50)), reference));
  EXPECT_TRUE(torch::equal(load(1, 1, 1, 1, 2, {41, 3}), torch::stack({reference[41], reference[3]})));
  EXPECT_FALSE(torch::equal(load(4, 1, 1, 2, 2, first_indices(50)), reference));
  EXPECT_FALSE(torch::equal(load(4, 1, 1, 1, 3, first_indices(50)), reference));
}

TEST(DataLoader, AnAlternatingFlipMirrorsEachImageInEverySecondEpoch) {
  const CountingImages dataset(50);
  const auto pipeline_of = [&](const char* transforms) {
    return Pipeline(trainer::testing::read_components(transform_registry(), transforms), dataset.info(), {});
  };
  const auto stored = pipeline_of("[]");
  const auto pipeline = pipeline_of("[random_horizontal_flip: {alternate: true}]");
  const auto load = [&](const Pipeline& transforms, int64_t num_workers, int64_t epoch) {
    DataLoader loader(dataset, transforms, {.batch_size = 4, .num_workers = num_workers, .seed = 1});
    loader.start_epoch(epoch, first_indices(50));
    return torch::cat(load_all(loader).images);
  };
  const auto as_stored = load(stored, 0, 0);
  const auto first = load(pipeline, 0, 0);
  int64_t num_mirrored = 0;
  for (int64_t i = 0; i < 50; ++i) {
    if (torch::equal(first[i], as_stored[i])) continue;
    EXPECT_TRUE(torch::equal(first[i], as_stored[i].flip(-1))) << i;
    ++num_mirrored;
  }
  EXPECT_NEAR(static_cast<double>(num_mirrored), 25, 11.7);  // 3.3 standard deviations
  for (const int64_t num_workers : {0, 1, 3}) {
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      EXPECT_TRUE(torch::equal(load(pipeline, num_workers, epoch), epoch % 2 == 0 ? first : first.flip(-1)))
          << num_workers << " workers, epoch " << epoch;
    }
  }
}

TEST(DataLoader, EachSampleHasDifferentRandomNumbers) {
  const CountingImages dataset(50);
  const auto pipeline = augmenting_pipeline(dataset.info());
  DataLoader loader(dataset, pipeline, {.batch_size = 50});
  loader.start_epoch(0, first_indices(50));
  const torch::Tensor images = loader.next()->images;
  std::map<std::pair<int64_t, int64_t>, int> dark_rows_and_columns;
  for (int64_t i = 0; i < 50; ++i) {
    const torch::Tensor dark = images[i].amax(0) == 0;
    ++dark_rows_and_columns[{dark.all(1).sum().item<int64_t>(), dark.all(0).sum().item<int64_t>()}];
  }
  EXPECT_GE(dark_rows_and_columns.size(), 7U);  // of 9 combinations of 0, 1 or 2 padded rows and columns
}

TEST(DataLoader, BatchesComeInOrderAndTheLastMayBeSmaller) {
  const CountingImages dataset(100);
  const auto pipeline = augmenting_pipeline(dataset.info());
  std::vector<int64_t> indices = {5, 99, 0, 5, 17, 4, 3};
  for (const int64_t num_workers : {0, 1, 3}) {
    DataLoader loader(dataset, pipeline, {.batch_size = 3, .num_workers = num_workers, .prefetch = 2});
    loader.start_epoch(0, indices);
    const auto epoch = load_all(loader);
    ASSERT_EQ(epoch.targets.size(), 3U);
    EXPECT_EQ(epoch.images.back().sizes(), (std::vector<int64_t>{1, 3, 8, 8}));
    EXPECT_TRUE(torch::equal(joined_labels(epoch), torch::tensor(indices)));
    EXPECT_EQ(loader.next(), nullptr);
  }
}

TEST(DataLoader, OddSizes) {
  const CountingImages dataset(10);
  const auto pipeline = augmenting_pipeline(dataset.info());
  for (const int64_t num_workers : {0, 2}) {
    DataLoader loader(dataset, pipeline, {.batch_size = 64, .num_workers = num_workers, .prefetch = 8});
    EXPECT_EQ(loader.next(), nullptr) << "before an epoch";
    loader.start_epoch(0, {});
    EXPECT_EQ(loader.next(), nullptr) << "an empty list";
    for (int64_t epoch = 1; epoch < 4; ++epoch) {
      loader.start_epoch(epoch, first_indices(10));
      const Batch* batch = loader.next();
      ASSERT_NE(batch, nullptr);
      EXPECT_EQ(batch->size, 10);
      EXPECT_EQ(loader.next(), nullptr);
    }
  }
}

TEST(DataLoader, ReusesItsBuffersAndDoesNotOverwriteTheBatchInUse) {
  const auto pipeline = augmenting_pipeline(CountingImages(1).info());
  // In both cases, the loader has four buffers: one in use, and max(num_workers, prefetch) others.
  for (const auto& [num_workers, prefetch] : {std::pair{2, 3}, std::pair{3, 2}}) {
    const CountingImages dataset(200);
    DataLoader loader(dataset, pipeline, {.batch_size = 2, .num_workers = num_workers, .prefetch = prefetch});
    loader.start_epoch(0, first_indices(200));
    int64_t num_batches = 0;
    while (const Batch* batch = loader.next()) {
      const int64_t first = 2 * num_batches++;
      EXPECT_LE(dataset.num_reads, 2 * (num_batches + 3));
      EXPECT_TRUE(torch::equal(batch->targets, torch::tensor({first, first + 1})));
    }
    EXPECT_EQ(dataset.num_reads, 200);
  }
}

TEST(DataLoader, MemoryFollowsTheLayout) {
  const CountingImages dataset(6);
  torch::Tensor planar;
  for (const bool channels_last : {false, true}) {
    const auto pipeline = augmenting_pipeline(dataset.info(), {torch::kBFloat16, channels_last});
    DataLoader loader(dataset, pipeline, {.batch_size = 4, .num_workers = 1});
    loader.start_epoch(0, first_indices(6));
    const auto epoch = load_all(loader);
    EXPECT_EQ(epoch.images[1].scalar_type(), torch::kBFloat16);
    EXPECT_EQ(epoch.images[1].is_contiguous(at::MemoryFormat::ChannelsLast), channels_last);
    EXPECT_EQ(epoch.targets[1].scalar_type(), torch::kInt64);
    const auto images = torch::cat(epoch.images).contiguous();
    if (!channels_last) planar = images;
    EXPECT_TRUE(torch::equal(images, planar));
  }
}

TEST(DataLoader, ASampleIsAnnouncedBeforeTheOneAheadOfItIsRead) {
  const auto images = std::make_shared<RecordingImages>(20);
  const Subset subset(images, {10, 11, 12, 13});
  const auto pipeline = augmenting_pipeline(subset.info());
  DataLoader loader(subset, pipeline, {.batch_size = 3});
  loader.start_epoch(0, {3, 0, 2, 1});
  load_all(loader);
  EXPECT_EQ(images->calls, (std::vector<std::string>{"prefetch 10", "read 13", "prefetch 12", "read 10", "read 12", "read 11"}));
}

TEST(DataLoader, FloatingPointTargets) {
  const LinearSamples dataset;
  for (const auto dtype : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    const Pipeline pipeline({}, dataset.info(), {torch::kFloat64, true});
    DataLoader loader(dataset, pipeline, {.batch_size = 2, .num_workers = 1, .target_dtype = dtype});
    loader.start_epoch(0, {3, 4, 9});
    const auto epoch = load_all(loader);
    const torch::Tensor i = torch::tensor({3.0, 4.0, 9.0}, torch::kFloat64);
    EXPECT_TRUE(torch::equal(torch::cat(epoch.images), torch::stack({i, i + 0.5}, 1)));
    EXPECT_TRUE(torch::equal(torch::cat(epoch.targets), torch::stack({-i, 2 * i, torch::full_like(i, 1.7e9 + 1.0 / 3)}, 1))) << dtype;
  }
}

TEST(DataLoader, AnEpochMayBeAbandonedAtAnyTime) {
  const CountingImages dataset(60);
  const auto pipeline = augmenting_pipeline(dataset.info());
  for (const int64_t num_workers : {0, 1, 3}) {
    DataLoader loader(dataset, pipeline, {.batch_size = 4, .num_workers = num_workers, .prefetch = 3});
    for (int64_t round = 0; round < 30; ++round) {
      loader.start_epoch(round, first_indices(60));
      for (int64_t i = 0; i < round % 5; ++i) loader.next();
    }
    loader.start_epoch(0, {7, 8, 9, 10, 11});
    EXPECT_TRUE(torch::equal(joined_labels(load_all(loader)), torch::tensor({7, 8, 9, 10, 11})));
  }
}

TEST(DataLoader, ReadsOfAnEpochHaveEndedWhenTheNextEpochBegins) {
  const CountingImages dataset(200);
  const auto pipeline = augmenting_pipeline(dataset.info());
  DataLoader loader(dataset, pipeline, {.batch_size = 20, .num_workers = 3, .prefetch = 3});
  for (int64_t round = 0; round < 50; ++round) {
    loader.start_epoch(round, first_indices(200));
    loader.next();
    loader.start_epoch(round, {});
    EXPECT_EQ(dataset.num_reading, 0);
  }
}

TEST(DataLoader, MayEndInMidEpoch) {
  const CountingImages dataset(60);
  const auto pipeline = augmenting_pipeline(dataset.info());
  for (int64_t round = 0; round < 30; ++round) {
    DataLoader loader(dataset, pipeline, {.batch_size = 4, .num_workers = 3, .prefetch = 3});
    if (round > 0) loader.start_epoch(0, first_indices(60));
    for (int64_t i = 0; i < round % 5; ++i) loader.next();
  }
}

TEST(DataLoader, WaitedIncludesWorkThatNextDoesItself) {
  const CountingImages dataset(10);
  const auto pipeline = augmenting_pipeline(dataset.info());
  DataLoader loader(dataset, pipeline, {.batch_size = 10});
  EXPECT_EQ(loader.counts().waited.count(), 0);
  loader.start_epoch(0, first_indices(10));
  loader.next();
  EXPECT_GT(loader.counts().waited.count(), 0);
}

TEST(DataLoader, CountsTheBatchesThatAreReadyWhenOneIsTaken) {
  const CountingImages dataset(40);
  const auto pipeline = augmenting_pipeline(dataset.info());
  DataLoader loader(dataset, pipeline, {.batch_size = 10, .num_workers = 1, .prefetch = 3});
  loader.start_epoch(0, first_indices(40));
  // When the only worker has read 31 samples, it has begun the last batch, so three batches are ready.
  while (dataset.num_reads < 31) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (int i = 0; i < 3; ++i) loader.next();
  EXPECT_EQ(loader.counts().num_batches, 3);
  EXPECT_GE(loader.counts().num_ready, 3 + 2 + 1);
  EXPECT_LE(loader.counts().num_ready, 4 + 3 + 2);
}

TEST(DataLoader, BatchesHaveTheSizesThatAreGiven) {
  const CountingImages images(20);
  const auto pipeline = augmenting_pipeline(images.info());
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(images, pipeline, {.batch_size = 4, .num_workers = workers, .prefetch = 2});
    for (int epoch = 0; epoch < 2; ++epoch) {
      loader.start_epoch(epoch, first_indices(7), {3, 0, 4, 0});
      for (const int64_t size : {3, 0, 4, 0}) {
        const auto* batch = loader.next();
        ASSERT_NE(batch, nullptr);
        EXPECT_EQ(batch->size, size);
        EXPECT_EQ(batch->images.sizes(), (std::vector<int64_t>{size, 3, kImageSize, kImageSize}));
        EXPECT_EQ(batch->targets.sizes(), std::vector<int64_t>{size});
      }
      EXPECT_EQ(loader.next(), nullptr);
    }
    EXPECT_ANY_THROW(loader.start_epoch(0, first_indices(6), {4}));
    EXPECT_ANY_THROW(loader.start_epoch(0, first_indices(5), {5}));
  }
}

}  // namespace
}  // namespace trainer::data
