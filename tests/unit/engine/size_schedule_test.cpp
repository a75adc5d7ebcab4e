// Training with dataset.size_schedule.

#include <gtest/gtest.h>

#include "tests/testing/small_run.h"
#include "train/engine/train_step.h"

namespace trainer::engine {
namespace {

const std::string kSizes =
    "experiment: sizes\n"
    "model: {name: resnet20}\n"
    "dataset:\n"
    "  name: synthetic\n"
    "  shape: [3, 48, 32]\n"
    "  num_classes: 10\n"
    "  num_train: 24\n"
    "  num_validation: 11\n"
    "  size_schedule: [{size: 12, until: 0.2}, {size: 20, until: 0.6}]\n"
    "dataloader: {batch_size: 8}\n"
    "optimizer: {name: sgd, lr: 0.01}\n"
    "runtime: {threads: 1}\n"
    "training: {epochs: 5}\n";

// Like torchvision.transforms.v2.functional.resize of float32 images, which has `antialias` on by default.
torch::Tensor scaled_by_libtorch(const torch::Tensor& images, int64_t height, int64_t width) {
  return at::_upsample_bilinear2d_aa(images.to(torch::kFloat32), {height, width}, /*align_corners=*/false);
}

TEST(SizeSchedule, ScalesImagesDownInTheirEpochs) {
  for (const std::vector<std::string>& overrides :
       {std::vector<std::string>{"amp={enabled: false}"}, {"amp={enabled: true, dtype: bfloat16}"}, {"runtime.channels_last=false"}}) {
    testing::SmallSession session(kSizes, overrides);
    auto& parts = session.parts();
    auto meter = parts.network.task->make_train_meter(torch::kCPU);
    TrainStep train_step(parts, 1, std::nullopt, meter);
    parts.data.begin(rest_of_epoch(parts.data.plan, 0), 0);
    const auto& batch = parts.data.next();
    const std::vector<std::pair<int64_t, int64_t>> sizes = {{18, 12}, {30, 20}, {30, 20}, {48, 32}, {48, 32}};
    for (int64_t epoch = 0; epoch < 5; ++epoch) {
      const auto& [height, width] = sizes[static_cast<size_t>(epoch)];
      const auto images = train_step.prepare(batch, {.num_group_samples = 8, .epoch = epoch}).images;
      EXPECT_EQ(images.sizes(), (std::vector<int64_t>{8, 3, height, width}));
      EXPECT_EQ(images.dtype(), batch.images.dtype());
      EXPECT_EQ(images.suggest_memory_format(), batch.images.suggest_memory_format());
      EXPECT_TRUE(torch::equal(images, scaled_by_libtorch(batch.images, height, width).to(batch.images.scalar_type())));
    }
  }
}

TEST(SizeSchedule, ValidationHasImagesOfFullSize) {
  // At a learning rate of nearly 0 and with frozen statistics, the network stays as it was initialised.
  const std::vector<std::string> still = {"optimizer.lr=1.0e-300", "model.freeze=[conv1, bn1, layer1, layer2, layer3]"};
  auto whole = still;
  whole.emplace_back("dataset.size_schedule=[]");
  const auto scaled = testing::train_text(kSizes, still);
  const auto plain = testing::train_text(kSizes, whole);
  EXPECT_EQ(testing::loss_of(scaled.events.validation.front()), testing::loss_of(plain.events.validation.front()));
  EXPECT_NE(testing::loss_of(scaled.events.train.front()), testing::loss_of(plain.events.train.front()));
}

TEST(SizeSchedule, ABatchWithoutSamplesKeepsItsShape) {
  testing::SmallSession session(kSizes);
  auto meter = session.parts().network.task->make_train_meter(torch::kCPU);
  TrainStep train_step(session.parts(), 1, std::nullopt, meter);
  const data::Batch empty{.images = torch::empty({0, 3, 48, 32}), .targets = torch::empty({0}, torch::kInt64)};
  EXPECT_EQ(train_step.prepare(empty, {.epoch = 0}).images.sizes(), (std::vector<int64_t>{0, 3, 18, 12}));
}

}  // namespace
}  // namespace trainer::engine
