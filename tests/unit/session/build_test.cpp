#include "run/session/build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/load.h"
#include "run/session/registries.h"
#include "tests/testing/ranks.h"
#include "trainer/error.h"

namespace trainer::session {
namespace {

TEST(NumWorkers, AreTheCoresOfAProcessWithAGpu) {
  device::Placement placement;
  placement.num_threads = 8;
  EXPECT_EQ(default_num_workers(placement), 1);
  placement.device = torch::kCUDA;
  EXPECT_EQ(default_num_workers(placement), 8);
  placement.num_threads = 64;
  EXPECT_EQ(default_num_workers(placement), 16);
}

TEST(Plan, MessagesBeginWithThePositionOfTheKey) {
  const auto error = [](const std::vector<std::string>& overrides, int64_t num_train, int world_size) -> std::string {
    const std::string text =
        "experiment: a\nmodel: {name: demo_conv}\ndataset: {name: synthetic}\ndataloader: {batch_size: 32}\ntraining: {epochs: 3}\n";
    try {
      make_plan(config::load_text(text, "x.yaml", overrides, all_registries()), num_train, world_size);
    } catch (const UsageError& usage) {
      return usage.what();
    }
    return "no error";
  };
  const std::string remedy = "; lower batch_size, or set dataloader.drop_last: false";
  EXPECT_EQ(error({}, 5, 1), "x.yaml:4:26: dataloader.batch_size: 5 training samples are fewer than one batch of 32" + remedy);
  EXPECT_EQ(error({}, 5, 2),
            "x.yaml:4:26: dataloader.batch_size: 5 training samples are fewer than one batch of 32 on each of 2 ranks" + remedy);
  EXPECT_EQ(error({"dataloader.batch_size=1", "dataloader.shards=exact"}, 2, 3),
            "command line: dataloader.batch_size: 2 training samples are fewer than one batch of 1 on each of 3 ranks; set "
            "dataloader.drop_last: false");
  for (const auto* drop_last : {"dataloader.drop_last=true", "dataloader.drop_last=false"}) {
    EXPECT_EQ(error({"dataloader.batch_size=1", "dataloader.shards=drop", drop_last}, 2, 3),
              "command line: dataloader.shards: drop leaves no sample for an epoch, because 2 training samples are fewer than the 3 ranks; "
              "choose pad, which repeats samples, or exact");
  }
  EXPECT_EQ(error({"dataloader.batch_size=64"}, 40, 1),
            "command line: dataloader.batch_size: 40 training samples are fewer than one batch of 64" + remedy);
  EXPECT_EQ(
      error({"dataloader={global_batch_size: 101}"}, 100, 2),
      "command line: dataloader.global_batch_size: 100 training samples are fewer than one batch of 101; lower global_batch_size, or set "
      "dataloader.drop_last: false");
  EXPECT_EQ(error({"training.accumulation_steps=9000000000000000000"}, 100, 2),
            "command line: training.accumulation_steps: a batch of 32 samples x 2 ranks x 9000000000000000000 accumulation steps is "
            "more than the 1125899906842624 samples that a step may have; lower this value");
}

TEST(ReadingGroup, ASizeThatDoesNotDivideTheRanksIsRefusedAtItsKey) {
  const std::string text =
      "experiment: a\nmodel: {name: demo_conv}\ndataset: {name: synthetic, distribution: scatter, distribution_group_size: 3}\n"
      "training: {epochs: 1}\n";
  const auto experiment = config::load_text(text, "x.yaml", {}, all_registries());
  testing::run_ranks(2, [&](distributed::ProcessGroups& groups) {
    EXPECT_THAT([&] { make_ranks(experiment, groups); },
                ::testing::ThrowsMessage<UsageError>("x.yaml:3:76: dataset.distribution_group_size: 2 processes cannot be divided into "
                                                     "groups of 3; choose a divisor of the number of processes, or auto"));
  });
}

TEST(ReadingGroup, ASizeWithoutSharingIsRefused) {
  const std::string text =
      "experiment: a\nmodel: {name: demo_conv}\ndataset: {name: synthetic, distribution_group_size: 2}\ntraining: {epochs: 1}\n";
  EXPECT_THAT([&] { config::load_text(text, "x.yaml", {}, all_registries()); },
              ::testing::ThrowsMessage<UsageError>("x.yaml:3:53: dataset.distribution_group_size: has no effect with "
                                                   "dataset.distribution: local; set scatter or broadcast, or remove it"));
}

}  // namespace
}  // namespace trainer::session
