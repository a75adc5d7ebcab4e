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
  EXPECT_EQ(overridden("model.name=bare"), "?");
  EXPECT_EQ(overridden("training.ema.decay=0.5"), "?");
  EXPECT_EQ(overridden("logging.every_steps=5"), "?");
}

TEST(ApplyOverride, ReplacesASectionOrList) {
  EXPECT_EQ(overridden("dataset={name: b}"), "?");
  EXPECT_EQ(overridden("dataset.train_transforms=[]"), "?");
}

TEST(ApplyOverride, SetsKeysInItemsOfAList) {
  EXPECT_EQ(overridden("dataset.train_transforms[1].crop.size=3"), "?");
  EXPECT_EQ(overridden("dataset.train_transforms[0].flip.p=0.3"), "?");
  EXPECT_EQ(overridden("dataset.train_transforms[0]=crop"), "?");
}

TEST(ApplyOverride, ProblemsNameWhatToWrite) {
  for (const std::string text : {"model", "=3", ".a=1", "a.=1", "a..b=1", "a[=1", "a[x]=1", "a[0]b=1", "[0]=1"}) {
    EXPECT_EQ(overridden(text), "command line: \"" + text + "\" is not an override; write key.path=value, such as optimizer.lr=0.05");
  }
  EXPECT_EQ(overridden("model={"), "?");
  EXPECT_EQ(overridden("model[0]=1"), "?");
  EXPECT_EQ(overridden("model.name.first=1"), "?");
  EXPECT_EQ(overridden("dataset.train_transforms.size=1"), "?");
  EXPECT_EQ(overridden("dataset.train_transforms[3].crop.size=1"), "?");
  EXPECT_EQ(overridden("dataset.train_transforms[1].flip.p=1"), "?");
  EXPECT_EQ(overridden("dataset.train_transforms[0].crop.size=1"), "?");
}

}  // namespace
}  // namespace trainer::config
