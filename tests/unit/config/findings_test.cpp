#include <gtest/gtest.h>

#include "config/problems.h"
#include "trainer/error.h"

namespace trainer::config {
namespace {

const Node& tree() {
  static const Node root = parse_yaml(
      "seed: 1\n"
      "dataset:\n"
      "  name: data\n"
      "  train_transforms: [flip, {crop: {size: 3}}]\n"
      "logging:\n",
      "x.yaml");
  return root;
}

TEST(PositionOf, IsThatOfTheValueOrOfWhatIsAroundIt) {
  const auto position = [](const std::string& path) { return to_string(position_of(tree(), path)); };
  EXPECT_EQ(position("seed"), "x.yaml:1:7");
  EXPECT_EQ(position("dataset.name"), "x.yaml:3:9");
  EXPECT_EQ(position("dataset.train_transforms[0]"), "x.yaml:4:22");
  EXPECT_EQ(position("dataset.train_transforms[1]"), "x.yaml:4:28");
  EXPECT_EQ(position("dataset.train_transforms[1].crop.size"), "x.yaml:4:42");
  EXPECT_EQ(position("dataset.train_transforms[1].crop.padding"), "x.yaml:4:35");
  EXPECT_EQ(position("dataset.train_transforms[2]"), "x.yaml:4:21");
  EXPECT_EQ(position("dataset.root"), "x.yaml:3:3");
  EXPECT_EQ(position("logging.every_steps"), "x.yaml:5:1");
  EXPECT_EQ(position("training.epochs"), "x.yaml:1:1");
  EXPECT_EQ(position("seed.x"), "x.yaml:1:7");
  EXPECT_EQ(position("no path["), "x.yaml:1:1");
}

TEST(Findings, AreReportedAtTheirKeysInTheOrderOfTheFile) {
  Problems problems;
  Findings findings(tree(), problems);
  findings.refuse("dataset.train_transforms[1].crop", "too large");
  findings.warn("logging.every_steps", "odd");
  findings.refuse("seed", "taken");
  findings.warn("seed", "small");
  try {
    problems.throw_if_any();
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "x.yaml:1:7: seed: taken\nx.yaml:4:35: dataset.train_transforms[1].crop: too large");
  }
  EXPECT_EQ(problems.lines(Problems::Kind::kWarning),
            (std::vector<std::string>{"x.yaml:1:7: seed: small", "x.yaml:5:1: logging.every_steps: odd"}));
}

TEST(Findings, ASectionIsReadableWithoutProblemsOfItsKeys) {
  Problems problems;
  Findings findings(tree(), problems);
  problems.add({"x.yaml", 4, 35}, "dataset.train_transforms[1].crop.size", "expected text");
  problems.add({"x.yaml", 1, 7}, "seed", "expected text");
  findings.refuse("logging.every_steps", "odd");
  findings.warn("training.epochs", "few");
  EXPECT_FALSE(findings.are_readable({"dataset"}));
  EXPECT_FALSE(findings.are_readable({"dataset.train_transforms"}));
  EXPECT_FALSE(findings.are_readable({"logging", "seed"}));
  EXPECT_FALSE(findings.are_readable({""}));
  EXPECT_TRUE(findings.are_readable({"logging", "training", "data"}));
  // After a contradiction, the section is readable but not consistent; a warning has no effect.
  EXPECT_FALSE(findings.are_consistent({"logging"}));
  EXPECT_FALSE(findings.are_consistent({"training", "dataset"}));
  EXPECT_TRUE(findings.are_consistent({"training", "data"}));
  problems.add({"command line", 0, 0}, "", "not an override");
  EXPECT_FALSE(findings.are_readable({"logging"}));
}

}  // namespace
}  // namespace trainer::config
