#include "train/engine/shared_batches.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <optional>

#include "tests/testing/ranks.h"
#include "tests/unit/data/counting_images.h"
#include "trainer/error.h"

namespace trainer::engine {
namespace {

using ::testing::ThrowsMessage;

constexpr Distribution kSchemes[] = {Distribution::kScatter, Distribution::kBroadcast};
constexpr int64_t kNumSamples = 40;

// Sample i has the values i, i + 0.5 and the targets -i, 1.7e9 + 1 / 3.
class Ramp : public data::Dataset {
 public:
  const data::DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return kNumSamples; }
  data::Sample read(int64_t index, data::Scratch& scratch) const override {
    const auto i = static_cast<float>(index);
    scratch.values = {i, i + 0.5F};
    scratch.targets = {-i, 1.7e9 + 1.0 / 3};
    return {.values = scratch.values, .target = {.values = scratch.targets}};
  }

 private:
  data::DatasetInfo info_{.shape = {2}, .is_image = false, .num_classes = 0, .num_targets = 2};
};

// The ranks have different numbers of batches, which are full, smaller or empty.
RankShard shard_for_rank(int rank) {
  const std::vector<std::vector<int64_t>> sizes = {{4, 4, 1}, {4, 3}, {0, 4, 2, 4}};
  RankShard shard{.samples = {}, .batch_sizes = sizes[static_cast<size_t>(rank)]};
  for (const int64_t size : shard.batch_sizes) {
    for (int64_t i = 0; i < size; ++i) shard.samples.indices.push_back(10 * rank + static_cast<int64_t>(shard.samples.indices.size()));
  }
  return shard;
}

struct Source {
  Source(const data::Dataset& dataset, const data::Pipeline& pipeline, const data::LoaderOptions& options, Distribution scheme,
         const std::shared_ptr<distributed::ProcessGroup>& group) {
    auto of_loader = options;
    of_loader.make_copy_event = {};
    std::unique_ptr<data::DataLoader> loader;
    if (group->rank() == 0) loader = std::make_unique<data::DataLoader>(dataset, pipeline, of_loader);
    const auto format = data::make_batch_tensors(dataset.info(), pipeline, options, torch::kMeta);
    batches = std::make_unique<SharedBatches>(group, scheme, format, options, std::move(loader));
  }
  std::unique_ptr<BatchSource> batches;
};

// Calls `test` on each rank of a group, for both schemes, and with and without loader threads.
void on_each_rank(
    int num_ranks, const data::LoaderOptions& options,
    const std::function<void(const std::shared_ptr<distributed::ProcessGroup>&, Distribution, const data::LoaderOptions&)>& test) {
  for (const auto scheme : kSchemes) {
    for (const int64_t num_workers : {0, 2}) {
      testing::run_ranks(num_ranks, [&](distributed::ProcessGroups& groups) {
        auto with_workers = options;
        with_workers.num_workers = num_workers;
        test(groups.world(), scheme, with_workers);
      });
    }
  }
}

// Each rank's batches of two epochs are those that it would load itself.
void expect_local_batches(const data::Dataset& dataset, const data::Pipeline& pipeline, const data::LoaderOptions& options) {
  for (const int num_ranks : {2, 3}) {
    on_each_rank(num_ranks, options, [&](const auto& group, Distribution scheme, const auto& with_workers) {
      Source source(dataset, pipeline, with_workers, scheme, group);
      LocalBatches expected(std::make_unique<data::DataLoader>(dataset, pipeline, options), group->rank());
      EXPECT_EQ(source.batches->batch_size(), options.batch_size);
      for (const int64_t epoch : {0, 1}) {
        expected.start_epoch(epoch, shard_for_rank);
        source.batches->start_epoch(epoch, shard_for_rank);
        // All ranks call next() equally often, at least once more than any rank has batches.
        for (int round = 0; round < 5; ++round) {
          const auto* want = expected.next();
          const auto* have = source.batches->next();
          ASSERT_EQ(have == nullptr, want == nullptr) << "rank " << group->rank() << ", round " << round;
          if (want == nullptr) continue;
          EXPECT_EQ(have->size, want->size);
          EXPECT_TRUE(have->images.equal(want->images)) << "rank " << group->rank() << ", round " << round;
          EXPECT_TRUE(have->targets.equal(want->targets));
          EXPECT_EQ(have->positions, want->positions);
          EXPECT_EQ(have->images.strides(), want->images.strides());
          EXPECT_EQ(have->images.scalar_type(), want->images.scalar_type());
        }
      }
      EXPECT_GT(source.batches->counts().waited.count(), 0);
    });
  }
}

TEST(SharedBatches, AreThoseThatEachRankWouldLoad) {
  const data::CountingImages images(kNumSamples);
  expect_local_batches(images, data::augmenting_pipeline(images.info(), {torch::kBFloat16, /*channels_last=*/true}),
                       {.batch_size = 4, .prefetch = 3, .seed = 5});
}

TEST(SharedBatches, OfNumbersHaveTargetsThatAreNumbers) {
  const Ramp ramp;
  expect_local_batches(ramp, {{}, ramp.info(), {torch::kFloat64}}, {.batch_size = 4, .target_dtype = torch::kFloat64});
}

TEST(SharedBatches, ARankThatDoesNotReadHasNoLoader) {
  const data::CountingImages images(kNumSamples);
  const auto pipeline = data::augmenting_pipeline(images.info());
  on_each_rank(2, {.batch_size = 4}, [&](const auto& group, Distribution scheme, const auto& options) {
    const data::CountingImages own(kNumSamples);
    Source source(own, pipeline, options, scheme, group);
    source.batches->start_epoch(0, [&](int rank) {
      EXPECT_EQ(group->rank(), 0) << "only the reader needs the shards";
      return shard_for_rank(rank);
    });
    while (source.batches->next() != nullptr) {
    }
    EXPECT_EQ(own.num_reads, group->rank() == 0 ? 16 : 0);
  });
}

TEST(SharedBatches, AnEpochMayBeDropped) {
  const data::CountingImages images(kNumSamples);
  const auto pipeline = data::augmenting_pipeline(images.info());
  on_each_rank(2, {.batch_size = 4}, [&](const auto& group, Distribution scheme, const auto& options) {
    Source source(images, pipeline, options, scheme, group);
    for (const int num_batches : {1, 0, 2, 1}) {
      source.batches->start_epoch(0, shard_for_rank);
      for (int i = 0; i < num_batches; ++i) {
        const auto shard = shard_for_rank(group->rank());
        const auto first = shard.samples.indices.begin() + (i == 0 ? 0 : shard.batch_sizes[0]);
        const std::vector<int64_t> labels(first, first + shard.batch_sizes[static_cast<size_t>(i)]);
        EXPECT_TRUE(source.batches->next()->targets.equal(torch::tensor(labels)));
      }
    }
  });
}

TEST(SharedBatches, AnErrorIsThrownInPlaceOfItsBatchOnEveryRank) {
  data::CountingImages images(kNumSamples);
  images.fail_at = {15};  // in the second batch of rank 1
  const auto pipeline = data::augmenting_pipeline(images.info());
  on_each_rank(3, {.batch_size = 4}, [&](const auto& group, Distribution scheme, const auto& options) {
    Source source(images, pipeline, options, scheme, group);
    source.batches->start_epoch(0, shard_for_rank);
    EXPECT_NE(source.batches->next(), nullptr);
    if (group->rank() == 0) {
      EXPECT_THAT([&] { source.batches->next(); }, ThrowsMessage<DataError>("sample 15: the file is damaged"));
    } else {
      EXPECT_THAT(
          [&] { source.batches->next(); },
          ThrowsMessage<PeerError>(fmt::format(
              "rank {}: rank 0, which reads the samples of this rank, cannot prepare a batch; see the message of rank 0", group->rank())));
    }
  });
}

TEST(SharedBatches, SamplesThatCannotBeReadAreSkippedOfTheirBatch) {
  data::CountingImages images(kNumSamples);
  images.fail_at = {0, 11, 12};
  const auto pipeline = data::augmenting_pipeline(images.info());
  for (const auto scheme : kSchemes) {
    testing::run_ranks(2, [&](distributed::ProcessGroups& groups) {
      const auto& group = groups.world();
      std::vector<std::string> skipped;
      Source source(images, pipeline, {.batch_size = 4, .report_skipped = [&](const std::string& text) { skipped.push_back(text); }},
                    scheme, group);
      source.batches->start_epoch(0, shard_for_rank);
      const std::vector<int64_t> labels = group->rank() == 0 ? std::vector<int64_t>{1, 2, 3} : std::vector<int64_t>{10, 13};
      const auto* batch = source.batches->next();
      EXPECT_EQ(batch->size, static_cast<int64_t>(labels.size()));
      EXPECT_TRUE(batch->targets.equal(torch::tensor(labels)));
      EXPECT_EQ(batch->positions, group->rank() == 0 ? (std::vector<int64_t>{1, 2, 3}) : (std::vector<int64_t>{0, 3}));
      EXPECT_EQ(batch->images.size(0), batch->size);
      EXPECT_EQ(skipped.size(), group->rank() == 0 ? 3U : 0U);
    });
  }
}

// A device that copies nothing until the host waits for its event.
struct SlowCopies {
  struct Event final : data::CopyEvent {
    explicit Event(SlowCopies& copies) : copies_(copies) {}
    void record() override { is_pending = true; }
    void wait() override {
      if (is_pending) ++copies_.num_waits;
      is_pending = false;
    }
    bool is_pending = false;

   private:
    SlowCopies& copies_;
  };
  int num_waits = 0;
};

TEST(SharedBatches, ABatchIsNotOverwrittenBeforeItIsCopied) {
  const data::CountingImages images(kNumSamples);
  const auto pipeline = data::augmenting_pipeline(images.info());
  const auto shard_for = [](int rank) {
    RankShard shard;
    for (int64_t i = 0; i < 20; ++i) shard.samples.indices.push_back(20 * rank + i);
    shard.batch_sizes.assign(10, 2);
    return shard;
  };
  for (const auto scheme : kSchemes) {
    testing::run_ranks(2, [&](distributed::ProcessGroups& groups) {
      const auto& group = groups.world();
      SlowCopies copies;
      Source source(images, pipeline, {.batch_size = 2, .make_copy_event = [&] { return std::make_unique<SlowCopies::Event>(copies); }},
                    scheme, group);
      for (const int64_t epoch : {0, 1}) {
        source.batches->start_epoch(epoch, shard_for);
        std::deque<std::pair<torch::Tensor, torch::Tensor>> pending;
        for (int64_t number = 0; const auto* batch = source.batches->next(); ++number) {
          batch->copied->record();
          pending.emplace_back(batch->targets, batch->targets.clone());
          // When all ranks have reached the barrier, the next batch has arrived.
          group->barrier();
          for (const auto& [targets, expected] : pending) EXPECT_TRUE(targets.equal(expected)) << "batch " << number;
          EXPECT_EQ(batch->targets[0].item<int64_t>(), 20 * group->rank() + 2 * number);
          if (pending.size() == 2) pending.pop_front();
        }
        EXPECT_EQ(copies.num_waits, 10 * epoch + 8) << "the rank waits for the copies of all batches but the last two";
      }
    });
  }
}

}  // namespace
}  // namespace trainer::engine
