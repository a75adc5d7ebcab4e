#include "config/overrides.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace trainer::config {
namespace {

constexpr const char* kFile =
    "model: {name: net}\n"
    "dataset:\n"
    "  train_transforms: [flip, {crop: {size: 32, padding: 4}}]\n"
    "logging:\n";

// The tree after an override, or its problem.
std::string overridden(const std::string& text) {
  auto root = parse_yaml(kFile, "x.yaml");
  Problems problems;
  apply_override(root, text, problems);
  try {
    problems.throw_if_any();
  } catch (const UsageError& error) {
    return error.what();
  }
  return to_inline_yaml(root);
}

TEST(ApplyOverride, SetsOneKey) {
  EXPECT_EQ(overridden("model.name=bare"),
            "{model: {name: bare}, dataset: {train_transforms: [flip, {crop: {size: 32, padding: 4}}]}, logging: null}");
  EXPECT_EQ(overridden("training.ema.decay=0.5"),
            "{model: {name: net}, dataset: {train_transforms: [flip, {crop: {size: 32, padding: 4}}]}, logging: null, training: {ema: "
            "{decay: 0.5}}}");
  EXPECT_EQ(overridden("logging.every_steps=5"),
            "{model: {name: net}, dataset: {train_transforms: [flip, {crop: {size: 32, padding: 4}}]}, logging: {every_steps: 5}}");
}

TEST(ApplyOverride, ReplacesASectionOrList) {
  EXPECT_EQ(overridden("dataset={name: b}"), "{model: {name: net}, dataset: {name: b}, logging: null}");
  EXPECT_EQ(overridden("dataset.train_transforms=[]"), "{model: {name: net}, dataset: {train_transforms: []}, logging: null}");
}

TEST(ApplyOverride, SetsKeysInItemsOfAList) {
  EXPECT_EQ(overridden("dataset.train_transforms[1].crop.size=3"),
            "{model: {name: net}, dataset: {train_transforms: [flip, {crop: {size: 3, padding: 4}}]}, logging: null}");
  EXPECT_EQ(overridden("dataset.train_transforms[0].flip.p=0.3"),
            "{model: {name: net}, dataset: {train_transforms: [{flip: {p: 0.3}}, {crop: {size: 32, padding: 4}}]}, logging: null}");
  EXPECT_EQ(overridden("dataset.train_transforms[0]=crop"),
            "{model: {name: net}, dataset: {train_transforms: [crop, {crop: {size: 32, padding: 4}}]}, logging: null}");
}

TEST(ApplyOverride, ProblemsNameWhatToWrite) {
  for (const std::string text : {"model", "=3", ".a=1", "a.=1", "a..b=1", "a[=1", "a[x]=1", "a[0]b=1", "[0]=1"}) {
    EXPECT_EQ(overridden(text), "command line: \"" + text + "\" is not an override; write key.path=value, such as optimizer.lr=0.05");
  }
  EXPECT_EQ(overridden("model={"), "command line: model: the value is not YAML (command line:1:1: a key must be plain text)");
  EXPECT_EQ(overridden("model[0]=1"), "command line: model[0]: model is not a list; to set a whole list, write model=[...]");
  EXPECT_EQ(overridden("model.name.first=1"),
            "command line: model.name.first: model.name is not a section; give it whole, as in model.name=...");
  EXPECT_EQ(overridden("dataset.train_transforms.size=1"),
            "command line: dataset.train_transforms.size: dataset.train_transforms is not a section; give it whole, as in "
            "dataset.train_transforms=[...]");
  EXPECT_EQ(overridden("dataset.train_transforms[3].crop.size=1"),
            "command line: dataset.train_transforms[3].crop.size: dataset.train_transforms has 2 items, counted from 0; to add one, give "
            "the whole list, as in dataset.train_transforms=[...]");
  EXPECT_EQ(overridden("dataset.train_transforms[1].flip.p=1"),
            "command line: dataset.train_transforms[1].flip.p: dataset.train_transforms[1] is crop, not flip; to exchange it, give the "
            "whole list");
  EXPECT_EQ(overridden("dataset.train_transforms[0].crop.size=1"),
            "command line: dataset.train_transforms[0].crop.size: dataset.train_transforms[0] is flip, not crop; to exchange it, give the "
            "whole list");
}

}  // namespace
}  // namespace trainer::config
