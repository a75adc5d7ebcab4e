#include <gtest/gtest.h>

#include "config/load.h"
#include "run/recipe/advice.h"
#include "run/recipe/registries.h"

namespace trainer::recipe {
namespace {

std::string advice(double waited, double seconds, const std::string& dataset) {
  const auto experiment = config::load_text(
      "experiment: a\nmodel: {name: resnet20}\ndataset: " + dataset + "\ndataloader: {num_workers: 2}\ntraining: {epochs: 9}\n", "x.yaml",
      {}, recipe::all_registries());
  return advice_on_data({.seconds = seconds, .waited_seconds = waited}, 3, experiment);
}

TEST(DataAdvice, NamesWhatHelps) {
  EXPECT_EQ(
      advice(34, 100, "{name: cifar10}"),
      "training waited for data for 34 % of epoch 4; raise dataloader.num_workers (now 2), or store the images as pixels with `trainer "
      "data pack --raw`, or copy the files to a disk of this host with dataset.stage_to");
  EXPECT_EQ(
      advice(34, 100, "{name: cifar10, stage_to: /tmp/x}"),
      "training waited for data for 34 % of epoch 4; raise dataloader.num_workers (now 2), or store the images as pixels with `trainer "
      "data pack --raw`");
  EXPECT_EQ(advice(34, 100, "{name: synthetic, shape: [3, 32, 32]}"),
            "training waited for data for 34 % of epoch 4; raise dataloader.num_workers (now 2)");
}

TEST(DataAdvice, IsNotGivenForShortWaits) {
  EXPECT_EQ(advice(9, 100, "{name: cifar10}"), "");
  EXPECT_EQ(advice(4, 8, "{name: cifar10}"), "");
}

}  // namespace
}  // namespace trainer::recipe
