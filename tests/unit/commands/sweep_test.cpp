#include <gmock/gmock.h>

#include <cmath>

#include "commands/run_set.h"
#include "trainer/error.h"

namespace trainer::commands {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

TEST(SplitValues, AtCommasThatBelongToNoValue) {
  EXPECT_THAT(split_values("0.1, 0.01"), ElementsAre("0.1", "0.01"));
  EXPECT_THAT(split_values("[1, 2],[3]"), ElementsAre("[1, 2]", "[3]"));
  EXPECT_THAT(split_values("{name: sgd, lr: [1, 2]},{name: adamw}"), ElementsAre("{name: sgd, lr: [1, 2]}", "{name: adamw}"));
  EXPECT_THAT(split_values(R"("a,b",'c,''d',"\",]")"), ElementsAre("\"a,b\"", "\"c,'d\"", R"("\",]")"));
  EXPECT_THAT(split_values("it's,b"), ElementsAre("\"it's\"", "b"));
  EXPECT_THAT(split_values("{a: 'x}, y'},b"), ElementsAre("{a: \"x}, y\"}", "b"));
  EXPECT_THAT(split_values("[1,2"), ElementsAre("[1,2")) << "no YAML, which load() reports";
}

TEST(Combine, EachValueWithEachOther) {
  std::vector<std::string> overrides = {"optimizer.lr=1,2", "training.epochs=3", "seed=4,5"};
  const auto keys = take_varied_keys(overrides);
  EXPECT_THAT(overrides, ElementsAre("training.epochs=3"));
  EXPECT_THAT(keys, ElementsAre(Pair("optimizer.lr", ElementsAre("1", "2")), Pair("seed", ElementsAre("4", "5"))));
  const auto runs = combine(keys);
  std::vector<std::string> names;
  for (const auto& run : runs) names.push_back(run.name);
  EXPECT_THAT(names, ElementsAre("lr=1,seed=4", "lr=1,seed=5", "lr=2,seed=4", "lr=2,seed=5"));
  EXPECT_THAT(runs[1].overrides, ElementsAre("optimizer.lr=1", "seed=5"));
}

TEST(Combine, NamesAreUniqueAndFitAFolder) {
  const auto runs = combine({{"a.name", {"x/y", "x-y", "x:y", std::string(300, 'z')}}, {"b.name", {"1"}}});
  EXPECT_EQ(runs[1].name, "a.name=x-y,b.name=1") << "the last part alone would not tell the keys apart";
  EXPECT_THAT(runs[0].name, HasSubstr("a.name=x-y-"));
  EXPECT_NE(runs[0].name, runs[2].name);
  for (const auto& run : runs) {
    EXPECT_LT(run.name.size(), 100U);
    EXPECT_THAT(run.name, Not(HasSubstr("/")));
  }
}

TEST(Combine, AllProblemsAreReported) {
  std::vector<std::string> overrides = {"a=[1,2],[1, 2]", "b=2", "b=3,4"};
  try {
    take_varied_keys(overrides);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "a=[1,2],[1, 2]: a value is given twice; remove one of them\n"
                 "b is given twice; give all of its values at once, as in b=1,2");
  }
}

TEST(DescribeRuns, MeansOverTheSeeds) {
  RunSet set{.name = "sweep", .folder = "runs/x"};
  set.runs = combine({{"seed", {"1", "2"}}, {"lr", {"8", "9"}}});
  const auto with = [](double top1) { return history::Json{{"step", 5}, {"metrics", {{"top1", top1}}}}; };
  const auto sweep = describe_runs(set, {with(0.5), with(0.25), with(1), history::Json::object()});
  ASSERT_EQ(sweep["groups"].size(), 2U);
  EXPECT_EQ(sweep["groups"][0]["values"], history::Json({{"lr", "8"}}));
  EXPECT_DOUBLE_EQ(sweep["groups"][0]["mean"]["top1"].get<double>(), 0.75);
  EXPECT_DOUBLE_EQ(sweep["groups"][0]["deviation"]["top1"].get<double>(), 0.25 * std::sqrt(2.0));
  EXPECT_EQ(sweep["groups"][1]["num_runs"], 1) << "the failed run has no validation";
  EXPECT_TRUE(sweep["groups"][1]["deviation"].empty()) << "a single value has no deviation";
  EXPECT_EQ(sweep["runs"][3]["run"], "runs/x/seed=2,lr=9");
}

}  // namespace
}  // namespace trainer::commands
