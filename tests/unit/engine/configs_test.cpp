// Every shipped experiment loads, builds and trains one step.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tests/testing/small_run.h"

namespace trainer::engine {
namespace {

std::vector<std::filesystem::path> shipped_configs() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(TRAINER_SOURCE_DIR) / "configs"))
    files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

class ShippedConfig : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(ShippedConfig, TrainsOneStep) {
  auto experiment = config::load(GetParam(), {}, session::all_registries());
  // A small batch makes the test fast.
  std::vector<std::string> overrides = {"logging.every_steps=1", "dataloader.batch_size=null", "dataloader.global_batch_size=16"};
  // The bundled images replace data sets that are not in the repository.
  if (experiment.dataset.component.name == "cifar10") overrides.push_back("dataset.root=" TRAINER_SOURCE_DIR "/datasets/cifar10_sample");
  const auto run = testing::train(config::load(GetParam(), overrides, session::all_registries()), 1);
  ASSERT_EQ(run.events.train.size(), 1U);
  EXPECT_TRUE(std::isfinite(testing::loss_of(run.events.train[0])));
}

INSTANTIATE_TEST_SUITE_P(Configs, ShippedConfig, ::testing::ValuesIn(shipped_configs()),
                         [](const auto& parameter) { return parameter.param.stem().string(); });

}  // namespace
}  // namespace trainer::engine
