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
      {{"optimizer.name=adam", "optimizer.momentum=0.9"}, "?"},
      {{"optimizer.name=adamw"}, "?"},
      {{"optimizer={name: adam, betas: [0.9]}"}, "?"},
      {{"optimizer.nesterov=true", "optimizer.momentum=0"}, "?"},
      {{"optimizer.nesterov=true", "optimizer.dampening=0.1"}, "?"},
      {{"optimizer={name: sam, lr: 0.1}", "training.accumulation_steps=2"}, "?"},
      {{"lr_scheduler={warmup_steps: 3, warmup_epochs: 1}"}, "?"},
      {{"lr_scheduler={name: cosine, warmup_epochs: 3}"}, "?"},
      {{"lr_scheduler={name: onecycle, warmup_epochs: 1}"}, "?"},
      {{"lr_scheduler={name: multistep, milestones: [2, 1]}"}, "?"},
      {{"lr_scheduler={name: multistep, milestones: [1, 1]}"}, "?"},
      {{"dataloader={batch_size: 8, global_batch_size: 8}"}, "?"},
      {{"dataloader={batch_size: null, global_batch_size: 9}", "training.accumulation_steps=2"}, "?"},
      {{"runtime.dtype=float64", "amp.enabled=true"}, "?"},
      {{"experiment=a/b"}, "?"},
      {{"model={name: wide_resnet, depth: 11}"}, "?"},
      {{"model.num_classes=20"}, "?"},
      {{"model={name: demo_linear}"}, "?"},
      {{"dataset.shape=[3, 28, 28]"}, "?"},
      {{"dataset.shape=[3, 28]"}, "?"},
      {{"dataset.shape=[65536, 65536, 65536]"}, "?"},
      {{"dataset.num_targets=2"}, "?"},
      {{"dataset={name: synthetic, num_classes: 0, labels: zero}"}, "?"},
      {{"dataset={name: cifar10, root: \"\"}"}, "?"},
      {{"dataset.train_transforms=[random_horizontal_flip]"}, "?"},
      {{"loss={name: mse}"}, "?"},
      {{"loss={name: mse}", "model.num_classes=100"}, "?"},
      {{"checkpoint.monitor=validation/top5", "dataset.num_classes=4", "model.num_classes=4"}, "?"},
      {{"checkpoint.monitor=validation/top1", "loss={name: mse}", "dataset={name: synthetic, num_classes: 0, num_targets: 10}"}, "?"},
  };
  for (const auto& [overrides, text] : findings) EXPECT_EQ(findings_of(overrides), text);
}

TEST(CheckComponents, WarnsOfWhatIsHardlyMeant) {
  const std::string images = "dataset={name: cifar10, root: data, train_transforms: ";
  const std::vector<Finding> findings = {
      {{images + "[{normalize: {mean: [125, 123, 114], std: [63, 62, 67]}}]}"}, "?"},
      {{images + "[{random_crop: {size: 32, padding: 40}}]}"}, "?"},
      {{"lr_scheduler={name: multistep, milestones: [1, 5]}"}, "?"},
      {{"checkpoint={monitor: validation/loss, mode: max}"}, "?"},
      {{"checkpoint={monitor: validation/top1, mode: min}"}, "?"},
  };
  for (const auto& [overrides, text] : findings) EXPECT_EQ(findings_of(overrides), text);
}

}  // namespace
}  // namespace trainer::session
