#include <gtest/gtest.h>

#include "config/yaml.h"
#include "tests/unit/config/small_registries.h"

namespace trainer::config {
namespace {

// The tree of a text, or the error.
std::string parsed(const std::string& text) {
  try {
    return to_inline_yaml(parse_yaml(text, "x.yaml"));
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Aliases, RepeatValuesOfEachKind) {
  EXPECT_EQ(parsed("a: &x 1\nb: *x\n"), "{a: 1, b: 1}");
  EXPECT_EQ(parsed("a: &x \"1\"\nb: [*x]\n"), "{a: \"1\", b: [\"1\"]}");
  EXPECT_EQ(parsed("a: &x\nb: *x\n"), "{a: null, b: null}");
  EXPECT_EQ(parsed("a: &x [1, &y {z: 2}]\nb: *x\nc: *y\n"), "{a: [1, {z: 2}], b: [1, {z: 2}], c: {z: 2}}");
  EXPECT_EQ(parsed("a: &x 1\nb: &x 2\nc: *x\n"), "{a: 1, b: 2, c: 2}");
}

TEST(Aliases, MergeKeysAddWhatIsNotGiven) {
  EXPECT_EQ(parsed("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3, r: 4}\n"), "{a: {p: 1, q: 2}, b: {p: 1, q: 3, r: 4}}");
  EXPECT_EQ(parsed("a: &x {p: 1, q: 2}\nb:\n  q: 3\n  <<: *x\n"), "{a: {p: 1, q: 2}, b: {q: 3, p: 1}}");
  EXPECT_EQ(parsed("a: [&x {p: 1}, &y {p: 2, q: 2}]\nb: {<<: [*x, *y]}\n"), "{a: [{p: 1}, {p: 2, q: 2}], b: {p: 1, q: 2}}");
  EXPECT_EQ(parsed("a: &x {p: 1}\nb: &y {<<: *x, q: 2}\nc: {<<: *y}\n"), "{a: {p: 1}, b: {p: 1, q: 2}, c: {p: 1, q: 2}}");
  const std::string refusal =
      ": << must be a section or a list of sections whose keys are merged, as in `<<: *name` or `<<: [*first, *second]`";
  EXPECT_EQ(parsed("a: &x 1\nb: {<<: *x}\n"), "x.yaml:2:5" + refusal);
  EXPECT_EQ(parsed("a: &x {p: 1}\nb: {<<: [*x, 2]}\n"), "x.yaml:2:5" + refusal);
  EXPECT_EQ(parsed("b: {<<: }\n"), "x.yaml:1:5" + refusal);
}

TEST(Aliases, Mistakes) {
  EXPECT_EQ(parsed("a: *x\n"), "x.yaml:1:4: invalid YAML: the referenced anchor is not defined");
  EXPECT_EQ(parsed("a: &x [1, *x]\n"), "x.yaml:1:11: this alias (*name) is inside the value that it refers to; remove the alias");
  EXPECT_EQ(parsed("&x a: 1\n"), "x.yaml:1:1: an anchor (&name) is not allowed before a key; write it before a value");
  EXPECT_EQ(parsed("a: &x 1\n*x : 2\n"), "x.yaml:2:1: a key must be a name, not null, a list, a section or an alias");
  EXPECT_EQ(parsed("a: {<<: {}, <<: {}}\n"), "x.yaml:1:13: \"<<\" is given a second time (first on line 1); keep one");
}

TEST(Aliases, CopiesAreLimited) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const auto alias = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + alias;
    for (int j = 1; j < 10; ++j) bomb += ", " + alias;
    bomb += "]\n";
  }
  EXPECT_NE(parsed(bomb).find(": the aliases (*name) of this file expand to more than 16.0 MiB of values; use fewer"), std::string::npos);
  std::string large = "a: &x " + std::string(500'000, 'x') + "\nb: [*x";
  for (int i = 0; i < 50; ++i) large += ", *x";
  EXPECT_NE(parsed(large + "]\n").find("x.yaml:2:"), std::string::npos);
  // Each nested in the next one.
  std::string deep = "a0: &a0 [x]\n";
  for (int i = 1; i < 40; ++i) deep += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) + "]\n";
  EXPECT_EQ(parsed(deep), "x.yaml:32:12: with this alias, values are nested more than 32 levels deep; use fewer levels");
}

TEST(Aliases, ProblemsAreReportedAtTheAnchorsValue) {
  EXPECT_EQ(load_error("experiment: a\nmodel: {name: net}\ntraining: {epochs: 1}\n"
                       "dataset:\n  name: data\n  train_transforms: [&c {crop: {size: 0, siz: 1}}]\n  validation_transforms: [flip, *c]\n"),
            "x.yaml:6:39: dataset.train_transforms[0].crop.size: expected an integer >= 1, got 0\n"
            "x.yaml:6:39: dataset.validation_transforms[1].crop.size: expected an integer >= 1, got 0\n"
            "x.yaml:6:42: dataset.train_transforms[0].crop.siz: unknown key; did you mean \"size\"?\n"
            "x.yaml:6:42: dataset.validation_transforms[1].crop.siz: unknown key; did you mean \"size\"?");
  EXPECT_EQ(load_error(std::string(kMinimal) + "optimizer: &o {lr: 0.5, learn: 1}\nlogging:\n  <<: *o\n  every_steps: 3\n"),
            "x.yaml:5:16: logging.lr: unknown key\n"
            "x.yaml:5:25: optimizer.learn: unknown key\n"
            "x.yaml:5:25: logging.learn: unknown key");
}

}  // namespace
}  // namespace trainer::config
