#include <gtest/gtest.h>

#include "config/base_files.h"
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

// Registries whose check completes values, as run/session/check does.
Registries completing_registries() {
  auto registries = small_registries();
  registries.check = [](Experiment& experiment, Findings&) {
    dynamic_cast<NetOptions&>(*experiment.model.component.options).num_classes = 3;
    experiment.dataset.validation_split.value = 0.25;
    experiment.dataset.validation_transforms = experiment.dataset.train_transforms;
    experiment.task.component.name = "regression";
  };
  return registries;
}

// Returns the comment that follows `line`.
std::string origin_of(const std::string& line, const std::vector<std::string>& overrides = {}) {
  const auto registries = completing_registries();
  auto experiment = load_text(kText, "x.yaml", overrides, registries);
  const auto shown = '\n' + to_yaml_with_origins(experiment, registries);
  const auto begin = shown.find('\n' + line + ' ');
  if (begin == std::string::npos) return "not in:" + shown;
  const auto end = begin + 1 + line.size();
  const auto comment = shown.substr(end, shown.find('\n', end) - end);
  return comment.substr(comment.find_first_not_of(' '));
}

TEST(Origins, EachValueHasOne) {
  EXPECT_EQ(origin_of("experiment: small"), "# x.yaml:1");
  EXPECT_EQ(origin_of("seed: 42"), "# default");
  EXPECT_EQ(origin_of("  stem: cifar"), "# default");
  EXPECT_EQ(origin_of("  max_grad_norm: null"), "# default");
  EXPECT_EQ(origin_of("  every_steps: 3", {"logging.every_steps=3"}), "# command line");
  EXPECT_EQ(origin_of("    - {crop: {size: 8, scale: [1]}}"), "# x.yaml:6");
  EXPECT_EQ(origin_of("    - {crop: {size: 8, scale: [2]}}", {"dataset.train_transforms[0].crop.scale=[2]"}), "# x.yaml:6, command line");
}

TEST(Origins, TheDataSetCompletesValues) {
  EXPECT_EQ(origin_of("  num_classes: 3"), "# from the data set");
  EXPECT_EQ(origin_of("  validation_transforms:\n    - {crop: {size: 8, scale: [1]}}"), "# from the data set");
  EXPECT_EQ(origin_of("  validation_split: 0.25"), "# from the data set");
  EXPECT_EQ(origin_of("  validation_split: 0.25", {"dataset.validation_split=auto"}), "# command line, from the data set");
}

TEST(Origins, TheLossCompletesTheTask) { EXPECT_EQ(origin_of("task:\n  name: regression"), "# from the loss"); }

TEST(Origins, TheTextIsTheResolvedFileWithAlignedComments) {
  const auto registries = completing_registries();
  auto experiment = load_text(kText, "x.yaml", {}, registries);
  const auto text = to_yaml_with_origins(experiment, registries);
  EXPECT_EQ(to_inline_yaml(parse_yaml(text, "again")), to_inline_yaml(parse_yaml(to_yaml(experiment, registries), "resolved")));
  EXPECT_EQ(text.find("# x.yaml:1\n") - text.find("experiment:"), text.find("# default\n") - text.find("seed:"));
}

}  // namespace
}  // namespace trainer::config
