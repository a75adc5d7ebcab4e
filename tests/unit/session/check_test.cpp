#include "run/recipe/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "config/load.h"
#include "run/recipe/registries.h"
#include "trainer/error.h"

namespace trainer::recipe {
namespace {

constexpr const char* kFile =
    "experiment: a\n"
    "model: {name: demo_conv}\n"
    "dataset:\n"
    "  name: synthetic\n"
    "optimizer: {name: sgd, lr: 0.1, momentum: 0.9}\n"
    "training: {epochs: 3}\n";

constexpr const char* kImages =
    "experiment: a\n"
    "model: {name: demo_conv}\n"
    "dataset:\n"
    "  name: cifar10\n"
    "  root: data\n"
    "  train_transforms:\n"
    "    - random_horizontal_flip\n"
    "    - random_crop: {size: 28, padding: 4}\n"
    "training: {epochs: 3}\n";

// Returns the error lines, or the warnings if there is no error.
std::string findings_of(const std::vector<std::string>& overrides, const std::string& file = kFile) {
  try {
    return fmt::format("{}", fmt::join(config::load_text(file, "x.yaml", overrides, all_registries()).warnings, "\n"));
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
       "x.yaml:5:33: optimizer.momentum: not a key of adam, but of sgd, rmsprop, sam, muon; instead of optimizer.name=adam, replace the "
       "whole "
       "section, as "
       "in \"optimizer={name: adam}\""},
      {{"optimizer={name: adam, betas: [0.9]}"}, "command line: optimizer.betas: [0.9] has 1 number; give two"},
      {{"optimizer.nesterov=true", "optimizer.momentum=0"},
       "command line: optimizer.nesterov: true needs momentum above 0 and dampening 0, but momentum is 0 and dampening 0; change these "
       "values or "
       "set nesterov to false"},
      {{"optimizer.nesterov=true", "optimizer.dampening=0.1"},
       "command line: optimizer.nesterov: true needs momentum above 0 and dampening 0, but momentum is 0.9 and dampening 0.1; change these "
       "values or set nesterov to false"},
      {{"lr_scheduler={name: cosine, warmup_epochs: 3}"},
       "command line: lr_scheduler.warmup_epochs: the warm-up of 3 epochs must be shorter than the training run (training.epochs = 3); "
       "shorten the warm-up or train longer"},
      {{"lr_scheduler={name: onecycle, warmup_epochs: 1}"},
       "command line: lr_scheduler.warmup_epochs: onecycle has its own warm-up; remove this key"},
      {{"lr_scheduler={name: multistep, milestones: [1, 1]}"},
       "command line: lr_scheduler.milestones: [1, 1] is not strictly increasing; sort it and give each epoch once"},
      {{"dataloader.sampler.name=class_balanced", "dataset.num_classes=0", "loss.name=mse"},
       "command line: dataloader.sampler.name: class_balanced needs one class per sample, but the targets of synthetic are numbers; choose "
       "another sampler"},
      {{"loss={name: cross_entropy, class_weights: [1, 2]}"},
       "command line: loss.class_weights: has 2 numbers, but there are 10 classes; set one number per class"},
      {{"loss.class_weights=[1, 0]"}, "command line: loss.class_weights: expected auto or a list, each item a number > 0, got [1, 0]"},
      {{"dataloader.sampler.repeats=2"}, "command line: dataloader.sampler.repeats: not a key of shuffled, but of repeated_augmentation"},
      {{"dataloader.sampler=weighted"},
       "command line: dataloader.sampler: expected a section of keys and values, got weighted; write {name: weighted}"},
      {{"dataloader.sampler={name: subset}"}, "command line: dataloader.sampler.fraction: missing; give this or dataloader.sampler.count"},
      {{"validation.every_epochs=null", "training.early_stopping={}"},
       "command line: training.early_stopping: needs validations, but validation.every_epochs and validation.every_steps are null; set one "
       "of them"},
      {{"validation={every_epochs: null, every_steps: 10}", "training.early_stopping={}"}, ""},
      {{"validation.every_epochs=null", "lr_scheduler={name: reduce_on_plateau}"},
       "command line: lr_scheduler.name: reduce_on_plateau needs validations, but validation.every_epochs and validation.every_steps are "
       "null; set one of them, or choose another schedule"},
      {{"logging={tensorboard: false, histograms_every_epochs: 1}"},
       "command line: logging.histograms_every_epochs: needs logging.tensorboard: true, because histograms are only written to TensorBoard "
       "files"},
      {{"logging.profile_steps=[20, 10]"},
       "command line: logging.profile_steps: expected two numbers, the first less than the second, as in [10, 20]"},
      {{"logging.profile_steps=[10]"},
       "command line: logging.profile_steps: expected two numbers, the first less than the second, as in [10, 20]"},
      {{"training.steps=9"}, "command line: training.steps: given together with training.epochs; set one of them to null"},
      {{"training.epochs=null"}, "command line: training.epochs: missing; set training.epochs or training.steps"},
      {{"training.epochs=null", "training.steps=0"}, "command line: training.steps: expected an integer >= 1 or null, got 0"},
      // The number of epochs is not known yet, so keys that are given in epochs are not compared with it.
      {{"training.epochs=null", "training.steps=9", "lr_scheduler={name: multistep, milestones: [50], warmup_epochs: 7}"}, ""},
      {{"model={name: wide_resnet, depth: 11}"},
       "command line: model.depth: 11 is not of the form 6n + 4; choose a depth of that form, for example 16, 22, 28 or 40"},
      {{"model.num_classes=20"}, "command line: model.num_classes: demo_conv has 20 outputs, but synthetic has 10 classes"},
      {{"model={name: demo_linear}"},
       "command line: model.name: demo_linear takes samples of shape 10, but synthetic has 3x32x32 after dataset.train_transforms; change "
       "these transforms, or choose another network"},
      {{"dataset.shape=[3, 28, 28]"},
       "x.yaml:2:15: model.name: demo_conv takes samples of shape 3x32x32, but synthetic has 3x28x28 after dataset.train_transforms; "
       "change these transforms, or choose another network"},
      {{"dataset.shape=[3, 28]"}, "command line: dataset.shape: has 2 dimensions; give [channels, height, width] or [features]"},
      {{"dataset.shape=[65536, 65536, 65536]"},
       "command line: dataset.shape: 281474976710656 values are too many for one sample; use at most 268435456"},
      {{"dataset.num_targets=2"},
       "command line: dataset.num_targets: 2 contradicts dataset.num_classes=10; for targets that are numbers, set dataset.num_classes=0"},
      {{"dataset={name: synthetic, num_classes: 0, labels: zero}"},
       "command line: dataset.labels: the value zero needs classes, but dataset.num_classes is 0; remove this key"},
      {{"dataset={name: cifar10, root: \"\"}"}, "command line: dataset.root: it is empty; set it to a folder, or to . for the current one"},
      {{"dataset.train_transforms=[random_horizontal_flip]"},
       "command line: dataset.train_transforms[0]: transform random_horizontal_flip: this data set does not contain images; leave its list "
       "of transforms empty"},
      {{"validation.tta=flip"}, "command line: validation.tta: flip needs images, but synthetic has none; set validation.tta: none"},
      {{"dataset.batch_transforms=[mixup, cutmix]", "dataset.shape=[10]", "model={name: demo_linear}"},
       "command line: dataset.batch_transforms[1]: cutmix needs samples with channels, height and width, but those of synthetic have the "
       "shape 10; remove it"},
      {{"dataset={name: synthetic, num_classes: 0, num_targets: 10, batch_transforms: [mixup]}", "loss={name: mse}"},
       "command line: dataset.batch_transforms[0]: mixup mixes class labels, but the targets of synthetic are numbers; remove it"},
      {{"dataset.batch_transforms=[mixup, flip]"}, "command line: dataset.batch_transforms[1]: \"flip\" is not one of mixup, cutmix"},
      {{"dataset.batch_transforms=[mixup: {alpha: 0}]"},
       "command line: dataset.batch_transforms[0].mixup.alpha: expected a number from 0 to 1000 (0 excluded), got 0"},
      {{"dataset.batch_transforms=[mixup: {alpha: 0.2}, cutmix]"}, ""},
      {{"dataset.batch_transforms=[mixup]", "training={epochs: 3, mixup_off_epochs: 3}"}, ""},
      {{"dataset.batch_transforms=[mixup]", "training={epochs: 3, mixup_off_epochs: 4}"},
       "command line: training.mixup_off_epochs: is more than training.epochs; choose fewer epochs"},
      {{"dataset.batch_transforms=[mixup]", "training={steps: 3, mixup_off_epochs: 1}"},
       "command line: training.mixup_off_epochs: needs training.epochs instead of training.steps"},
      {{"model={name: resnet20}", "dataset.size_schedule=[{size: 16, until: 0.4}, {size: 24, until: 0.7}]"}, ""},
      {{"model={name: resnet20}", "dataset.size_schedule=[{size: 16, until: 0.4}]", "training={steps: 3}"},
       "command line: dataset.size_schedule: needs training.epochs instead of training.steps"},
      {{"model={name: resnet20}", "dataset.size_schedule=[{size: 24, until: 0.4}, {size: 16, until: 0.7}]"},
       "command line: dataset.size_schedule: size 16 until 0.7 after size 24 until 0.4 is not an increase of both; increase both from item "
       "to item"},
      {{"model={name: resnet20}", "dataset.size_schedule=[{size: 32, until: 0.4}]"},
       "command line: dataset.size_schedule: 32 pixels are not less than the shorter edge of the images after their transforms, 32; choose "
       "a smaller size"},
      {{"dataset.size_schedule=[{size: 24, until: 0.4}]"},
       "x.yaml:2:15: model.name: demo_conv takes samples of shape 3x32x32, but synthetic has 3x24x24 after dataset.size_schedule; change "
       "these transforms, or choose another network"},
      {{"model={name: demo_linear}", "dataset.shape=[10]", "dataset.size_schedule=[{size: 24, until: 0.4}]"},
       "command line: dataset.size_schedule: needs images, but the samples have the shape 10; remove it"},
      {{"model={name: resnet20, freeze: [backbone]}", "dataset.size_schedule=[{size: 24, until: 0.4}]", "training.cache_features=true"},
       "command line: dataset.size_schedule: cached features are those of images of one size; remove this key, or set "
       "training.cache_features: false"},
      {{"loss={name: mse}", "model.num_classes=100"},
       "command line: loss.name: mse needs floating-point targets, but synthetic has class labels; choose a loss for class labels, "
       "such as cross_entropy or bce\ncommand line: model.num_classes: "
       "demo_conv has 100 outputs, but synthetic has 10 classes"},
      {{"checkpoint.monitor=validation/top5", "dataset.num_classes=4", "model.num_classes=4"},
       "command line: checkpoint.monitor: validation/top5 needs at least 5 classes, but synthetic has 4; choose validation/top1"},
      {{"checkpoint.monitor=validation/top1", "loss={name: mse}", "dataset={name: synthetic, num_classes: 0, num_targets: 10}"},
       "command line: checkpoint.monitor: the task regression does not measure validation/top1; choose validation/loss"},
      {{"task.name=regression"},
       "command line: task.name: regression needs a loss for numbers, such as mse; choose one, or remove the task section"},
      {{"task.name=classification", "loss={name: mse}", "dataset={name: synthetic, num_classes: 0, num_targets: 10}"},
       "command line: task.name: classification needs a loss for class labels, such as cross_entropy; choose one, or remove the task "
       "section"},
  };
  for (const auto& [overrides, text] : findings) EXPECT_EQ(findings_of(overrides), text);
}

TEST(CheckComponents, ReportsAllContradictionsAtTheirPositions) {
  const std::string file =
      "experiment: a/b\n"
      "model: {name: demo_conv, num_classes: 7}\n"
      "dataset: {name: synthetic, shape: [3, 28, 28]}\n"
      "dataloader: {batch_size: 8, global_batch_size: 8}\n"
      "optimizer: {name: sam, lr: 0.1}\n"
      "lr_scheduler: {name: onecycle, warmup_steps: 3}\n"
      "training: {epochs: 3, accumulation_steps: 2}\n"
      "amp: {enabled: true}\n"
      "runtime: {dtype: float64}\n"
      "loss: {name: mse}\n";
  EXPECT_EQ(
      findings_of({"checkpoint.monitor=validation/top1"}, file),
      "x.yaml:1:13: experiment: \"a/b\" is not a valid folder name; use letters, digits, - and _\n"
      "x.yaml:2:15: model.name: demo_conv takes samples of shape 3x32x32, but synthetic has 3x28x28 after dataset.train_transforms; "
      "change these transforms, or choose another network\n"
      "x.yaml:2:39: model.num_classes: demo_conv has 7 outputs, but synthetic has 10 classes\n"
      "x.yaml:4:48: dataloader.global_batch_size: given together with dataloader.batch_size; keep one of them\n"
      "x.yaml:5:19: optimizer.name: sam processes each batch twice, so it cannot accumulate 2 micro-steps; set "
      "training.accumulation_steps: 1\n"
      "x.yaml:6:46: lr_scheduler.warmup_steps: onecycle has its own warm-up; remove this key\n"
      "x.yaml:8:16: amp.enabled: true contradicts runtime.dtype: float64, because autocast computes in 16 bits; remove one of them\n"
      "x.yaml:10:14: loss.name: mse needs floating-point targets, but synthetic has class labels; choose a loss for class labels, such "
      "as cross_entropy or bce\n"
      "command line: checkpoint.monitor: the task regression does not measure validation/top1; choose validation/loss");
}

TEST(CheckComponents, ASectionWithProblemsIsNotComparedWithOthers) {
  const std::vector<Finding> findings = {
      {{"dataset.shape=x", "model.num_classes=20"},
       "command line: dataset.shape: expected a list, each item an integer from 1 to 65536, got x"},
      {{"model.num_classes=x", "dataset.shape=[3, 28, 28]"}, "command line: model.num_classes: expected an integer >= 1 or auto, got x"},
      {{"model.num_classes=x", "dataset.train_transforms=[random_horizontal_flip]"},
       "command line: model.num_classes: expected an integer >= 1 or auto, got x\n"
       "command line: dataset.train_transforms[0]: transform random_horizontal_flip: this data set does not contain images; leave its list "
       "of transforms empty"},
      {{"model={name: wide_resnet, depth: 11, num_classes: 20}"},
       "command line: model.depth: 11 is not of the form 6n + 4; choose a depth of that form, for example 16, 22, 28 or 40"},
      {{"training.epochs=x", "lr_scheduler={name: multistep, milestones: [5]}"},
       "command line: training.epochs: expected an integer >= 1 or null, got x"},
      {{"loss.name=x", "dataset.num_classes=4", "model.num_classes=4", "checkpoint.monitor=validation/top5"},
       "command line: loss.name: \"x\" is not one of cross_entropy, bce, focal, mse, l1, huber"},
  };
  for (const auto& [overrides, text] : findings) EXPECT_EQ(findings_of(overrides), text);
}

TEST(CheckComponents, OneIsWrittenInTheSingular) {
  const std::vector<Finding> findings = {
      {{"dataset.num_classes=1", "model.num_classes=10"},
       "command line: model.num_classes: demo_conv has 10 outputs, but synthetic has 1 class"},
      {{"model={name: demo_linear, in_features: 4, out_features: 1}", "dataset.shape=[4]"},
       "command line: model.out_features: demo_linear has 1 output, but synthetic has 10 classes"},
      {{"loss={name: mse}", "dataset.num_classes=0", "model.num_classes=10"},
       "command line: model.num_classes: demo_conv has 10 outputs, but synthetic has 1 target"},
  };
  for (const auto& [overrides, text] : findings) EXPECT_EQ(findings_of(overrides), text);
}

TEST(CheckComponents, TransformsThatCannotBeAppliedAreReportedAtTheirPlace) {
  const std::string fits = "dataset.train_transforms[1].random_crop.size=32";
  EXPECT_EQ(findings_of({fits}, kImages), "");
  EXPECT_EQ(findings_of({fits, "validation.tta=flip_and_shift"}, kImages), "");
  const std::vector<Finding> findings = {
      {{},
       "x.yaml:2:15: model.name: demo_conv takes samples of shape 3x32x32, but cifar10 has 3x28x28 after dataset.train_transforms; change "
       "these transforms, or choose another network"},
      {{"dataset.train_transforms[1].random_crop.size=41"},
       "x.yaml:8:7: dataset.train_transforms[1]: transform random_crop: size 41 does not fit into the image of 32 x 32 pixels with padding "
       "4; choose a smaller size or more padding"},
      {{fits, "dataset.train_transforms[0]={normalize: {mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5]}}"},
       "command line: dataset.train_transforms[0]: transform normalize: it is number 1 of 2 in its list, but only transforms that erase, "
       "such as random_erasing and cutout, may follow it; move the other transforms before it"},
      {{fits, "dataset.validation_transforms=[{normalize: {mean: [0.5], std: [0.5, 0.5]}}]"},
       "command line: dataset.validation_transforms[0]: transform normalize: mean has 1 value and std 2, but the images have 3 channels; "
       "give one value for each channel"},
      {{fits, "dataset.validation_transforms=[{random_crop: {size: 30}}]"},
       "x.yaml:2:15: model.name: demo_conv takes samples of shape 3x32x32, but cifar10 has 3x30x30 after dataset.validation_transforms; "
       "change these transforms, or choose another network"},
      {{"dataset.validation_transforms=[{random_crop: {size: 33}}]"},
       "x.yaml:2:15: model.name: demo_conv takes samples of shape 3x32x32, but cifar10 has 3x28x28 after dataset.train_transforms; change "
       "these transforms, or choose another network\n"
       "command line: dataset.validation_transforms[0]: transform random_crop: size 33 does not fit into the image of 32 x 32 pixels with "
       "padding 0; choose a smaller size or more padding"},
  };
  for (const auto& [overrides, text] : findings) EXPECT_EQ(findings_of(overrides, kImages), text);
}

TEST(CheckComponents, NetworksOfAnySizeNeedTheChannelsOfTheImages) {
  EXPECT_EQ(findings_of({"model={name: resnet20}"}, kImages), "");
  EXPECT_EQ(findings_of({"model={name: resnet20, in_channels: 1}"}, kImages),
            "command line: model.name: resnet20 takes samples of shape 1xHxW, but cifar10 has 3x28x28 after dataset.train_transforms; "
            "change these transforms, or choose another network");
}

TEST(CheckComponents, OnlyAFolderCanBeCopied) {
  EXPECT_EQ(findings_of({"dataset.stage_to=/tmp/x", "dataset.train_transforms[1].random_crop.size=32"}, kImages), "");
  EXPECT_EQ(findings_of({"dataset.stage_to=/tmp/x"}),
            "command line: dataset.stage_to: synthetic has no folder that could be copied; remove this key");
}

TEST(CheckComponents, WarnsOfWhatIsProbablyUnintended) {
  const std::string images = "dataset={name: cifar10, root: data, train_transforms: ";
  const std::vector<Finding> findings = {
      {{images + "[{normalize: {mean: [125, 123, 114], std: [63, 62, 67]}}]}"},
       "command line: dataset.train_transforms[0].normalize.mean: [125, 123, 114] is too large for pixel values from 0 to 1; if the values "
       "are for pixels from 0 to 255, divide them by 255\ncommand line: dataset.train_transforms[0].normalize.std: [63, 62, 67] is too "
       "large for pixel values from 0 to 1; if the values are for pixels from 0 to 255, divide them by 255"},
      {{images + "[{random_crop: {size: 32, padding: 40}}]}"},
       "command line: dataset.train_transforms[0]: transform random_crop: padding 40 is not smaller than the image, which has 32 x 32 "
       "pixels, so a crop may contain little or nothing of the image; choose less padding"},
      {{"model={name: demo_conv, freeze: [conv]}"},
       "command line: model.freeze: the frozen layers keep their random initial values; set model.weights or model.init_from, or remove "
       "this key"},
      {{"checkpoint={monitor: validation/loss, mode: max}"},
       "command line: checkpoint.mode: max keeps the checkpoint with the highest validation/loss as the best one, but a lower value is "
       "better; remove mode"},
      {{"checkpoint.mode=min"},
       "command line: checkpoint.mode: min keeps the checkpoint with the lowest validation/top1 as the best one, but a higher value is "
       "better; remove mode"},
      {{"checkpoint.mode=max", "loss={name: mse}", "dataset={name: synthetic, num_classes: 0, num_targets: 10}"},
       "command line: checkpoint.mode: max keeps the checkpoint with the highest validation/loss as the best one, but a lower value is "
       "better; remove mode"},
      {{"checkpoint={monitor: validation/loss, mode: min}"}, ""},
      {{"checkpoint={monitor: validation/top5, mode: max}"}, ""},
      {{"lr_scheduler={name: multistep, milestones: [1, 2.75]}"}, ""},
      {{"lr_scheduler={name: multistep, milestones: [3]}"},
       "command line: lr_scheduler.milestones: epoch 3 is not reached in 3 epochs of training; remove it, or raise training.epochs"},
      {{"lr_scheduler={name: multistep, milestones: [1, 3.5]}"},
       "command line: lr_scheduler.milestones: epoch 3.5 is not reached in 3 epochs of training; remove it, or raise training.epochs"},
      {{images + "[{normalize: {mean: [1, 0.5, 0], std: [1, 1, 1]}}]}"}, ""},
      {{images + "[{normalize: {mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 1.5]}}]}"},
       "command line: dataset.train_transforms[0].normalize.std: [0.5, 0.5, 1.5] is too large for pixel values from 0 to 1; if the values "
       "are for pixels from 0 to 255, divide them by 255"},
      {{images + "[{random_crop: {size: 32, padding: 31}}]}"}, ""},
  };
  for (const auto& [overrides, text] : findings) EXPECT_EQ(findings_of(overrides), text);
}

TEST(CheckComponents, WarningsAreListedAtTheirPositions) {
  const std::string lines =
      "lr_scheduler: {name: multistep, milestones: [9]}\n"
      "checkpoint: {mode: min}\n";
  EXPECT_EQ(findings_of({"dataset.train_transforms[1].random_crop={size: 32, padding: 32}",
                         "dataset.validation_transforms=[{normalize: {mean: [2, 0, 0], std: [1, 1, 1]}}]"},
                        kImages + lines),
            "x.yaml:8:7: dataset.train_transforms[1]: transform random_crop: padding 32 is not smaller than the image, which has 32 x 32 "
            "pixels, so a crop may contain little or nothing of the image; choose less padding\n"
            "x.yaml:10:45: lr_scheduler.milestones: epoch 9 is not reached in 3 epochs of training; remove it, or raise training.epochs\n"
            "x.yaml:11:20: checkpoint.mode: min keeps the checkpoint with the lowest validation/top1 as the best one, but a higher value "
            "is better; remove mode\n"
            "command line: dataset.validation_transforms[0].normalize.mean: [2, 0, 0] is too large for pixel values from 0 to 1; if the "
            "values are for pixels from 0 to 255, divide them by 255");
}

}  // namespace
}  // namespace trainer::recipe
