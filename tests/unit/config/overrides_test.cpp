#include "config/overrides.h"

#include <gtest/gtest.h>

#include "config/problems.h"
#include "trainer/error.h"

namespace trainer::config {
namespace {

constexpr const char* kFile =
    "model: {name: net}\n"
    "dataset:\n"
    "  train_transforms: [flip, {crop: {size: 32, padding: 4}}]\n"
    "logging:\n";

// The tree after an override, or its problem.
std::string overridden(const std::string& text, const std::string& file = kFile) {
  auto root = parse_yaml(file, "x.yaml");
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
  const std::string dataset = "dataset: {train_transforms: [flip, {crop: {size: 32, padding: 4}}]}";
  EXPECT_EQ(overridden("model.name=bare"), "{model: {name: bare}, " + dataset + ", logging: null}");
  EXPECT_EQ(overridden("model.num_classes=5"), "{model: {name: net, num_classes: 5}, " + dataset + ", logging: null}");
  EXPECT_EQ(overridden("training.ema.decay=0.5"), "{model: {name: net}, " + dataset + ", logging: null, training: {ema: {decay: 0.5}}}");
  EXPECT_EQ(overridden("logging.every_steps=5"), "{model: {name: net}, " + dataset + ", logging: {every_steps: 5}}");
  EXPECT_EQ(overridden("model.name="), "{model: {name: null}, " + dataset + ", logging: null}");
  EXPECT_EQ(overridden("model.name=a=b"), "{model: {name: a=b}, " + dataset + ", logging: null}");
}

TEST(ApplyOverride, ReplacesASectionOrList) {
  EXPECT_EQ(overridden("dataset={name: b}"), "{model: {name: net}, dataset: {name: b}, logging: null}");
  EXPECT_EQ(overridden("dataset={}"), "{model: {name: net}, dataset: {}, logging: null}");
  EXPECT_EQ(overridden("dataset=null"), "{model: {name: net}, dataset: null, logging: null}");
  EXPECT_EQ(overridden("dataset.train_transforms=[]"), "{model: {name: net}, dataset: {train_transforms: []}, logging: null}");
}

TEST(ApplyOverride, SetsKeysInItemsOfAList) {
  const auto with = [](const std::string& list) {
    return "{model: {name: net}, dataset: {train_transforms: " + list + "}, logging: null}";
  };
  EXPECT_EQ(overridden("dataset.train_transforms[1].crop.size=3"), with("[flip, {crop: {size: 3, padding: 4}}]"));
  EXPECT_EQ(overridden("dataset.train_transforms[1].crop={size: 3}"), with("[flip, {crop: {size: 3}}]"));
  EXPECT_EQ(overridden("dataset.train_transforms[1].crop.mode=zero"), with("[flip, {crop: {size: 32, padding: 4, mode: zero}}]"));
  EXPECT_EQ(overridden("dataset.train_transforms[0].flip.p=0.3"), with("[{flip: {p: 0.3}}, {crop: {size: 32, padding: 4}}]"));
  EXPECT_EQ(overridden("dataset.train_transforms[0]=crop"), with("[crop, {crop: {size: 32, padding: 4}}]"));
}

TEST(ApplyOverride, WhatItSetsIsOnTheCommandLine) {
  auto root = parse_yaml(kFile, "x.yaml");
  Problems problems;
  apply_override(root, "dataset.train_transforms[1].crop={size: [3]}", problems);
  apply_override(root, "training.ema.decay=0.5", problems);
  EXPECT_NO_THROW(problems.throw_if_any());
  const auto position = [&](const std::string& path) { return to_string(position_of(root, path)); };
  EXPECT_EQ(position("dataset.train_transforms[1].crop.size[0]"), "command line");
  EXPECT_EQ(position("training.ema"), "command line");
  EXPECT_EQ(position("dataset.train_transforms[1]"), "x.yaml:3:28");
  EXPECT_EQ(position("dataset.train_transforms[0]"), "x.yaml:3:22");
}

TEST(ApplyOverride, ProblemsNameWhatToWrite) {
  for (const std::string text : {"model", "=3", ".a=1", "a.=1", "a..b=1", "a[=1", "a[0=1", "a[x]=1", "a[-1]=1", "a[0]b=1", "[0]=1",
                                 "a.[0]=1", "a[99999999999999999999]=1"}) {
    EXPECT_EQ(overridden(text), "command line: \"" + text + "\" is not an override; write key.path=value, such as optimizer.lr=0.05");
  }
  const std::string list = "dataset.train_transforms";
  const std::string exchange = "; to replace it, give the whole list";
  const std::vector<std::pair<std::string, std::string>> problems = {
      {"model={", "model: the value is not valid YAML (command line:1:1: a key must be a name, not null, a list or a section)"},
      {"model=a: b: c", "model: the value is not valid YAML (command line:1:5: invalid YAML: illegal map value)"},
      {"model[0]=1", "model[0]: model is not a list; to set a whole list, write model=[...]"},
      {"logging[0]=1", "logging[0]: logging is not a list; to set a whole list, write logging=[...]"},
      {"model.name.first=1", "model.name.first: model.name is not a section; set the whole value, as in model.name=..."},
      {list + ".size=1", list + ".size: " + list + " is not a section; set the whole value, as in " + list + "=[...]"},
      {list + "[0][1]=1", list + "[0][1]: " + list + "[0] is not a list; to set a whole list, write " + list + "[0]=[...]"},
      {list + "[2]=flip",
       list + "[2]: " + list + " has 2 items, with indices from 0; to add an item, give the whole list, as in " + list + "=[...]"},
      {list + "[1].flip.p=1", list + "[1].flip.p: " + list + "[1] is crop, not flip" + exchange},
      {list + "[0].crop.size=1", list + "[0].crop.size: " + list + "[0] is flip, not crop" + exchange},
  };
  for (const auto& [text, problem] : problems) EXPECT_EQ(overridden(text), "command line: " + problem);
  EXPECT_EQ(overridden("a[1]=c", "a: [b]\n"),
            "command line: a[1]: a has 1 item, with indices from 0; to add an item, give the whole list, as in a=[...]");
}

}  // namespace
}  // namespace trainer::config
