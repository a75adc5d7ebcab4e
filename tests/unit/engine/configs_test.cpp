// Every shipped experiment loads, builds and trains one step.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tests/testing/small_datasets.h"
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
  const testing::SmallDatasets datasets;
  auto overrides = datasets.overrides_for(GetParam());
  const auto name = config::load(GetParam(), overrides, recipe::all_registries()).dataset.component.name;
  const bool has_files = name == "image_folder" || name == "tiny_imagenet";
  if (has_files && TRAINER_WITH_OPENCV == 0) GTEST_SKIP() << "this build reads no image files";
  // A small batch makes the test fast.
  overrides.insert(overrides.end(), {"logging.every_steps=1", "dataloader.batch_size=null", "dataloader.global_batch_size=16"});
  const auto run = testing::train(config::load(GetParam(), overrides, recipe::all_registries()), 1);
  ASSERT_EQ(run.events.train.size(), 1U);
  EXPECT_TRUE(std::isfinite(testing::loss_of(run.events.train[0])));
}

INSTANTIATE_TEST_SUITE_P(Configs, ShippedConfig, ::testing::ValuesIn(shipped_configs()),
                         [](const auto& parameter) { return parameter.param.stem().string(); });

}  // namespace
}  // namespace trainer::engine
