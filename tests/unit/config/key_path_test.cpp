#include <gtest/gtest.h>

#include "config/overrides.h"

namespace trainer::config {
namespace {

// "name" or "[index]" of each step, then for each step the path up to and including it.
using Steps = std::vector<std::string>;

Steps steps_of(const std::string& text) {
  Steps steps;
  const auto path = parse_key_path(text);
  if (!path) return {"no path"};
  for (const auto& step : *path) steps.push_back(step.index ? "[" + std::to_string(*step.index) + "]" : step.name);
  for (const auto& step : *path) steps.push_back(step.path);
  return steps;
}

TEST(KeyPath, HasAStepForEachNameAndIndex) {
  EXPECT_EQ(steps_of("seed"), (Steps{"seed", "seed"}));
  EXPECT_EQ(steps_of("optimizer.lr"), (Steps{"optimizer", "lr", "optimizer", "optimizer.lr"}));
  EXPECT_EQ(steps_of("a[0].b"), (Steps{"a", "[0]", "b", "a", "a[0]", "a[0].b"}));
  EXPECT_EQ(steps_of("a.b[12]"), (Steps{"a", "b", "[12]", "a", "a.b", "a.b[12]"}));
  EXPECT_EQ(steps_of("a[1][02]"), (Steps{"a", "[1]", "[2]", "a", "a[1]", "a[1][02]"}));
  EXPECT_EQ(steps_of("a b.\u00e4"), (Steps{"a b", "\u00e4", "a b", "a b.\u00e4"}));
}

TEST(KeyPath, OtherFormsAreRefused) {
  for (const char* text : {"", ".", ".a", "a.", "a..b", "[0]", "a.[0]", "a[", "a[]", "a[0", "a[x]", "a[-1]", "a[+1]", "a[ 1]", "a[1 ]",
                           "a[0x1]", "a[0]b", "a[0].", "a[18446744073709551616]"}) {
    EXPECT_EQ(steps_of(text), Steps{"no path"}) << text;
  }
  // Deeper than any file may nest.
  std::string deep = "a";
  for (int i = 0; i < 64; ++i) deep += ".a";
  EXPECT_EQ(steps_of(deep), Steps{"no path"});
}

}  // namespace
}  // namespace trainer::config
