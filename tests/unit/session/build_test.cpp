#include "run/recipe/build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "config/load.h"
#include "inference/weights_by_name.h"
#include "run/recipe/registries.h"
#include "tests/testing/ranks.h"
#include "trainer/error.h"
#include "trainer/state.h"

namespace trainer::recipe {
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

TEST(BuildNetwork, ValuesThatAreLoadedAreNotInitialised) {
  const auto experiment = [](const std::string& override_text) {
    return config::load_text("experiment: a\nmodel: {name: resnet20}\ndataset: {name: synthetic}\ntraining: {epochs: 1}\n", "x.yaml",
                             {override_text}, all_registries());
  };
  device::Placement placement;
  const auto small = build_network(experiment("dataset.num_classes=3"), placement);
  const auto file = state::state_of(*small.model);
  const auto load = [&](models::Model& model) { inference::load_weights(file, "a.pt", /*averaged=*/false, model); };
  const auto loaded = build_network(experiment("dataset.num_classes=3"), placement, {}, load);
  const auto expected = small.model->parameters();
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(torch::equal(loaded.model->parameters()[i], expected[i])) << i;
  // 64 features for each of 12 million classes are 2.9 GiB.
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  EXPECT_THAT(
      [&] { build_network(experiment("dataset.num_classes=12000000"), placement, {}, load); },
      ::testing::ThrowsMessage<CheckpointError>(::testing::HasSubstr("Float[3, 64] in the file, Float[12000000, 64] in the model")));
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  constexpr long kMostKibibytes = 500'000;
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, kMostKibibytes);
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
}  // namespace trainer::recipe
