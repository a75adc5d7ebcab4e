// For each sampler, any number of ranks trains the same samples as one rank, and a resumed run equals an uninterrupted one.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>

#include "base/file.h"
#include "data/samplers/sampler.h"
#include "tests/testing/ranks.h"
#include "tests/testing/small_run.h"
#include "tests/testing/temporary_folder.h"

namespace trainer::engine {
namespace {

using testing::SmallRun;
using testing::TemporaryFolder;

// 60 images for training, mirrored and cropped at random, a file of weights for them, and 4 images for validation.
class Samplers : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string source = TRAINER_SOURCE_DIR "/datasets/cifar10_sample/cifar-10-batches-bin/";
    const auto target = folder_.path() / "cifar-10-batches-bin";
    std::filesystem::create_directories(target);
    constexpr size_t kRecordBytes = 3073;
    for (const std::string name : {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
      const size_t num_images = name == "test_batch" ? 4 : 12;
      std::ofstream(target / (name + ".bin"), std::ios::binary) << read_file(source + name + ".bin").substr(0, num_images * kRecordBytes);
    }
    std::ofstream weights(folder_.path() / "weights.txt");
    for (int i = 0; i < 60; ++i) weights << i % 4 << '\n';
  }

  std::string text(const std::string& sampler) const {
    return fmt::format(
        "experiment: samplers\n"
        "model: {{name: demo_conv}}\n"
        "dataset:\n"
        "  name: cifar10\n"
        "  root: {}\n"
        "  train_transforms: [random_horizontal_flip, {{random_crop: {{size: 32, padding: 4}}}}]\n"
        "dataloader: {{global_batch_size: 12, drop_last: false, shards: exact, sampler: {}}}\n"
        "optimizer: {{name: sgd, lr: 0.001, momentum: 0.9}}\n"
        "runtime: {{dtype: float64, threads: 1}}\n"
        "training: {{epochs: 2}}\n"
        "logging: {{every_steps: 1}}\n",
        folder_.path().string(), sampler);
  }

  // The samplers by name: YAML, and the number of samples in an epoch.
  std::map<std::string, std::pair<std::string, int64_t>> samplers() const {
    return {{"shuffled", {"{name: shuffled}", 60}},
            {"weighted", {fmt::format("{{name: weighted, weights: {}/weights.txt, num_samples: 31}}", folder_.path().string()), 31}},
            // More samples than there are images.
            {"class_balanced", {"{name: class_balanced, num_samples: 70}", 70}},
            {"subset", {"{name: subset, fraction: 0.4}", 24}},
            {"repeated_augmentation", {"{name: repeated_augmentation, repeats: 2}", 60}}};
  }

  static SmallRun train_on(int world_size, const std::string& text, int64_t max_steps = -1, const std::filesystem::path& folder = {}) {
    SmallRun first;
    testing::run_ranks(world_size, [&](distributed::ProcessGroups& groups) {
      auto run = testing::train_text(text, {}, max_steps, make_ranks(groups), folder);
      run.leave_ranks();
      if (groups.world()->rank() == 0) first = std::move(run);
    });
    return first;
  }

  TemporaryFolder folder_;
};

TEST_F(Samplers, AllAreTested) {
  for (const auto& name : data::sampler_registry().names()) EXPECT_TRUE(samplers().contains(name)) << name;
}

TEST_F(Samplers, CurvesEqualThoseOfOneProcess) {
  for (const auto& [name, sampler] : samplers()) {
    SCOPED_TRACE(name);
    const auto& [yaml, num_samples] = sampler;
    const auto one = train_on(1, text(yaml));
    const auto steps_per_epoch = (num_samples + 11) / 12;
    EXPECT_EQ(one.events.start.steps_per_epoch, steps_per_epoch);
    ASSERT_EQ(static_cast<int64_t>(one.events.train.size()), 2 * steps_per_epoch);
    const auto three = train_on(3, text(yaml));
    ASSERT_EQ(three.events.train.size(), one.events.train.size());
    for (size_t i = 0; i < one.events.train.size(); ++i) {
      const double expected = testing::loss_of(one.events.train[i]);
      EXPECT_NEAR(testing::loss_of(three.events.train[i]), expected, 1e-10 * expected) << "step " << i;
    }
  }
}

TEST_F(Samplers, ARunResumesWithinAnEpoch) {
  for (const auto& [name, sampler] : samplers()) {
    SCOPED_TRACE(name);
    const auto& yaml = sampler.first;
    const auto straight = train_on(2, text(yaml));
    const TemporaryFolder checkpoints;
    ASSERT_FALSE(train_on(2, text(yaml), 1, checkpoints.path()).done);
    const auto resumed = train_on(2, text(yaml), -1, checkpoints.path());
    EXPECT_EQ(resumed.events.start.resume->step, 1);
    EXPECT_TRUE(testing::bitwise_equal(testing::state_of(resumed.parts()), testing::state_of(straight.parts())));
  }
}

TEST_F(Samplers, RepeatedImagesAreAugmentedDifferently) {
  testing::SmallSession session(text("{name: repeated_augmentation, repeats: 3}"));
  auto& parts = session.parts();
  parts.data.begin(rest_of_epoch(parts.data.plan, 0), 0);
  int num_equal = 0;
  for (int64_t step = 0; step < 5; ++step) {
    const auto& batch = parts.data.next();
    ASSERT_EQ(batch.size, 12);
    for (int64_t i = 0; i < 12; ++i) {
      EXPECT_TRUE(batch.targets[i].equal(batch.targets[i - i % 3]));
      if (i % 3 > 0 && batch.images[i].equal(batch.images[i - 1])) ++num_equal;
    }
  }
  // Each of the 40 pairs is equal with a probability of 1 / (2 x 81).
  EXPECT_LE(num_equal, 3);
}

}  // namespace
}  // namespace trainer::engine
