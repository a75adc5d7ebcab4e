#include "session/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "config/load.h"
#include "session/registries.h"

namespace trainer::session {
namespace {

constexpr const char* kFile =
    "experiment: a\n"
    "model: {name: demo_conv}\n"
    "dataset:\n"
    "  name: synthetic\n"
    "optimizer: {name: sgd, lr: 0.1, momentum: 0.9}\n"
    "training: {epochs: 3}\n";

// The lines of what is refused, or else of the warnings.
std::string findings_of(const std::vector<std::string>& overrides) {
  try {
    return fmt::format("{}", fmt::join(config::load_text(kFile, "x.yaml", overrides, all_registries()).warnings, "\n"));
  } catch (const UsageError& error) {
    return error.what();
  }
}

struct Finding {
  std::vector<std::string> overrides;
  std::string text;
};

TEST(CheckComponents, RefusesContradictions) {
  EXPECT_EQ(findings_of({}), "");
  const std::vector<Finding> findings = {
      {{"optimizer.name=adam", "optimizer.momentum=0.9"},
       "x.yaml:5:33: optimizer.momentum: not a key of adam, but of sgd, sam; instead of optimizer.name=adam, replace the whole section, as "
       "in \"optimizer={name: adam}\""},
      {{"optimizer.name=adamw"},
       "x.yaml:5:33: optimizer.momentum: not a key of adamw, but of sgd, sam; instead of optimizer.name=adamw, replace the whole section, "
       "as in \"optimizer={name: adamw}\""},
      {{"optimizer={name: adam, betas: [0.9]}"}, "command line: optimizer.betas: [0.9] has 1 number; give two"},
      {{"optimizer.nesterov=true", "optimizer.momentum=0"},
       "command line: optimizer.nesterov: true needs momentum above 0 and dampening 0, but momentum is 0 and dampening 0; change those or "
       "set nesterov to false"},
      {{"optimizer.nesterov=true", "optimizer.dampening=0.1"},
       "command line: optimizer.nesterov: true needs momentum above 0 and dampening 0, but momentum is 0.9 and dampening 0.1; change those "
       "or set nesterov to false"},
      {{"optimizer={name: sam, lr: 0.1}", "training.accumulation_steps=2"},
       "command line: optimizer.name: sam processes each batch twice, so it cannot accumulate 2 micro-steps; set "
       "training.accumulation_steps: 1"},
      {{"lr_scheduler={warmup_steps: 3, warmup_epochs: 1}"},
       "command line: lr_scheduler.warmup_epochs: given together with lr_scheduler.warmup_steps; keep one of them"},
      {{"lr_scheduler={name: cosine, warmup_epochs: 3}"},
       "command line: lr_scheduler.warmup_epochs: the warm-up of 3 epochs is not shorter than the training, training.epochs = 3; shorten "
       "it or train longer"},
      {{"lr_scheduler={name: onecycle, warmup_epochs: 1}"},
       "command line: lr_scheduler.warmup_epochs: onecycle has a warm-up of its own; remove this key"},
      {{"lr_scheduler={name: multistep, milestones: [2, 1]}"},
       "command line: lr_scheduler.milestones: [2, 1] does not increase from each to the next; sort it and give each epoch once"},
      {{"lr_scheduler={name: multistep, milestones: [1, 1]}"},
       "command line: lr_scheduler.milestones: [1, 1] does not increase from each to the next; sort it and give each epoch once"},
      {{"dataloader={batch_size: 8, global_batch_size: 8}"},
       "command line: dataloader.global_batch_size: given together with dataloader.batch_size; keep one of them"},
      {{"dataloader={batch_size: null, global_batch_size: 9}", "training.accumulation_steps=2"},
       "command line: dataloader.global_batch_size: 9 is not a multiple of training.accumulation_steps = 2"},
      {{"runtime.dtype=float64", "amp.enabled=true"},
       "command line: amp.enabled: autocast lowers the precision that runtime.dtype: float64 asks for; choose one of them"},
      {{"experiment=a/b"}, "command line: experiment: \"a/b\" cannot name a folder; use letters, digits, - and _"},
      {{"model={name: wide_resnet, depth: 11}"},
       "command line: model.depth: wide_resnet needs a depth of 6n + 4, such as 16, 22, 28 or 40, but it is 11"},
      {{"model.num_classes=20"}, "command line: model.num_classes: demo_conv has 20 outputs, but synthetic has 10 classes"},
      {{"model={name: demo_linear}"},
       "command line: model.name: demo_linear takes samples of shape 10, but synthetic has 3x32x32 after dataset.train_transforms"},
      {{"dataset.shape=[3, 28, 28]"},
       "x.yaml:2:15: model.name: demo_conv takes samples of shape 3x32x32, but synthetic has 3x28x28 after dataset.train_transforms"},
      {{"dataset.shape=[3, 28]"}, "command line: dataset.shape: 2 lengths were given; give [channels, height, width] or [features]"},
      {{"dataset.shape=[65536, 65536, 65536]"},
       "command line: dataset.shape: 281474976710656 values are too many for one sample; give at most 268435456"},
      {{"dataset.num_targets=2"},
       "command line: dataset.num_targets: 2 contradicts dataset.num_classes=10; for targets that are numbers set num_classes=0"},
      {{"dataset={name: synthetic, num_classes: 0, labels: zero}"},
       "command line: dataset.labels: zero contradicts dataset.num_classes=0; without classes leave labels out"},
      {{"dataset={name: cifar10, root: \"\"}"}, "command line: dataset.root: it is empty; name a folder, or . for the current one"},
      {{"dataset.train_transforms=[random_horizontal_flip]"},
       "command line: dataset.train_transforms[0]: transform random_horizontal_flip: this data set holds no images; leave its list of "
       "transforms empty"},
      {{"loss={name: mse}"}, "command line: loss.name: mse needs floating-point targets, but synthetic gives class labels"},
      {{"loss={name: mse}", "model.num_classes=100"},
       "command line: loss.name: mse needs floating-point targets, but synthetic gives class labels\ncommand line: model.num_classes: "
       "demo_conv has 100 outputs, but synthetic has 10 classes"},
      {{"checkpoint.monitor=validation/top5", "dataset.num_classes=4", "model.num_classes=4"},
       "command line: checkpoint.monitor: validation/top5 needs five classes, but synthetic has 4; choose validation/top1"},
      {{"checkpoint.monitor=validation/top1", "loss={name: mse}", "dataset={name: synthetic, num_classes: 0, num_targets: 10}"},
       "command line: checkpoint.monitor: mse has no classes, so that only its loss is measured; choose validation/loss"},
  };
  for (const auto& [overrides, text] : findings) EXPECT_EQ(findings_of(overrides), text);
}

TEST(CheckComponents, WarnsOfWhatIsHardlyMeant) {
  const std::string images = "dataset={name: cifar10, root: data, train_transforms: ";
  const std::vector<Finding> findings = {
      {{images + "[{normalize: {mean: [125, 123, 114], std: [63, 62, 67]}}]}"},
       "command line: dataset.train_transforms[0].normalize.mean: [125, 123, 114] cannot be that of pixel values from 0 to 1; divide "
       "values for 0 to 255 by 255\ncommand line: dataset.train_transforms[0].normalize.std: [63, 62, 67] cannot be that of pixel values "
       "from 0 to 1; divide values for 0 to 255 by 255"},
      {{images + "[{random_crop: {size: 32, padding: 40}}]}"},
       "command line: dataset.train_transforms[0]: transform random_crop: padding 40 is not smaller than the image, which is 32 x 32 "
       "pixels; a crop may show little or nothing of it"},
      {{"lr_scheduler={name: multistep, milestones: [1, 5]}"},
       "command line: lr_scheduler.milestones: epoch 5 is not reached in a training of 3 epochs"},
      {{"checkpoint={monitor: validation/loss, mode: max}"},
       "command line: checkpoint.mode: max keeps the checkpoint with the highest validation/loss as the best, but a lower one is better; "
       "leave mode out"},
      {{"checkpoint={monitor: validation/top1, mode: min}"},
       "command line: checkpoint.mode: min keeps the checkpoint with the lowest validation/top1 as the best, but a higher one is better; "
       "leave mode out"},
  };
  for (const auto& [overrides, text] : findings) EXPECT_EQ(findings_of(overrides), text);
}

}  // namespace
}  // namespace trainer::session
