#include <gtest/gtest.h>

#include "config/differences.h"
#include "config/problems.h"
#include "tests/unit/config/small_registries.h"

namespace trainer::config {
namespace {

constexpr const char* kText =
    "experiment: small\n"
    "model: {name: net}\n"
    "dataset:\n"
    "  name: data\n"
    "  train_transforms:\n"
    "    - crop: {size: 8}\n"
    "    - flip\n"
    "training: {epochs: 2}\n";

// Registries that complete values, as run/recipe/check does.
Registries completing_registries() {
  auto registries = small_registries();
  registries.complete = [](Experiment experiment, const Findings&) {
    dynamic_cast<NetOptions&>(*experiment.model.component.options).num_classes = 3;
    experiment.dataset.validation_split.value = 0.25;
    experiment.dataset.validation_transforms = experiment.dataset.train_transforms;
    experiment.task.component.name = "regression";
    return experiment;
  };
  return registries;
}

// Returns the comment that follows `value`.
std::string origin_of(const std::string& value, const std::vector<std::string>& overrides = {}) {
  const auto registries = completing_registries();
  const auto lines = '\n' + values_with_origins(load_text(kText, "x.yaml", overrides, registries), registries);
  const auto begin = lines.find('\n' + value + "  # ");
  if (begin == std::string::npos) return "not in:" + lines;
  const auto comment = begin + value.size() + 5;
  return lines.substr(comment, lines.find('\n', comment) - comment);
}

TEST(Origins, EachValueHasOne) {
  EXPECT_EQ(origin_of("experiment: small"), "x.yaml:1");
  EXPECT_EQ(origin_of("seed: 42"), "default");
  EXPECT_EQ(origin_of("model.stem: cifar"), "default");
  EXPECT_EQ(origin_of("training.max_grad_norm: null"), "default");
  EXPECT_EQ(origin_of("logging.every_steps: 3", {"logging.every_steps=3"}), "command line");
  EXPECT_EQ(origin_of("dataset.train_transforms: [{crop: {size: 8, scale: [1]}}, {flip: {}}]"), "x.yaml:6");
  EXPECT_EQ(
      origin_of("dataset.train_transforms: [{crop: {size: 8, scale: [2]}}, {flip: {}}]", {"dataset.train_transforms[0].crop.scale=[2]"}),
      "x.yaml:6, command line");
}

TEST(Origins, OtherComponentsCompleteValues) {
  EXPECT_EQ(origin_of("model.num_classes: 3"), "from the data set");
  EXPECT_EQ(origin_of("dataset.validation_transforms: [{crop: {size: 8, scale: [1]}}, {flip: {}}]"), "from the data set");
  EXPECT_EQ(origin_of("dataset.validation_split: 0.25"), "from the data set");
  EXPECT_EQ(origin_of("dataset.validation_split: 0.25", {"dataset.validation_split=auto"}), "command line, from the data set");
  EXPECT_EQ(origin_of("task.name: regression"), "from the loss");
}

}  // namespace
}  // namespace trainer::config
