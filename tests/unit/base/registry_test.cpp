#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "trainer/component.h"
#include "trainer/keys.h"

namespace trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

struct TimesOptions {
  int factor = 2;
  void describe(KeyTable&) {}
};

struct PlusOptions {
  int summand = 10;
  void describe(KeyTable&) {}
};

// The components are numbers, made from a number that is moved in.
using Numbers = Registry<int, std::unique_ptr<int>>;

Numbers numbers() {
  Numbers registry("number");
  registry.add<TimesOptions>("times", "Multiplies.", [](const auto& options, auto value) { return *value * options.factor; });
  registry.add<PlusOptions>("plus", "Adds.", [](const auto& options, auto value) { return *value + options.summand; });
  return registry;
}

TEST(Registry, MakesTheComponentThatWasConfigured) {
  const auto registry = numbers();
  const auto times = registry.configure("times");
  EXPECT_EQ(registry.make(times, std::make_unique<int>(4)), 8);
  EXPECT_EQ(registry.make(registry.configure("plus"), std::make_unique<int>(4)), 14);
  dynamic_cast<TimesOptions&>(*times.options).factor = 5;
  EXPECT_EQ(registry.make(times, std::make_unique<int>(4)), 20);
  EXPECT_EQ(registry.make(registry.configure("times"), std::make_unique<int>(4)), 8) << "each configuration has separate options";
}

TEST(Registry, ListsItsComponentsInTheirOrder) {
  const auto registry = numbers();
  EXPECT_THAT(registry.names(), ElementsAre("times", "plus"));
  EXPECT_EQ(registry.components()[1].doc, "Adds.");
  EXPECT_EQ(registry.find("plus"), &registry.components()[1]);
  EXPECT_EQ(registry.find("minus"), nullptr);
  EXPECT_THAT(Numbers("number").names(), IsEmpty());
}

TEST(Registry, RefusesTwoComponentsOfTheSameName) {
  auto registry = numbers();
  EXPECT_THAT([&] { registry.add<PlusOptions>("times", "Again.", [](const auto&, auto) { return 0; }); },
              ThrowsMessage<std::logic_error>("two components of the number registry are named \"times\""));
  EXPECT_THAT(registry.names(), ElementsAre("times", "plus"));
  EXPECT_EQ(registry.make(registry.configure("times"), std::make_unique<int>(4)), 8);
}

TEST(Registry, ForeignConfigurationsThrowLogicError) {
  const auto registry = numbers();
  const auto make = [&](const ComponentConfig& config) { return registry.make(config, std::make_unique<int>(4)); };
  EXPECT_THAT([&] { registry.configure("minus"); }, ThrowsMessage<std::logic_error>("the number registry has no component \"minus\""));
  EXPECT_THAT([&] { make({"minus", nullptr}); }, ThrowsMessage<std::logic_error>("the number registry has no component \"minus\""));
  EXPECT_THAT(
      [&] {
        make({"times", nullptr});
      },
      ThrowsMessage<std::logic_error>("the options given for \"times\" belong to another component"));
  EXPECT_THAT(
      [&] {
        make({"times", registry.configure("plus").options});
      },
      ThrowsMessage<std::logic_error>("the options given for \"times\" belong to another component"));
}

}  // namespace
}  // namespace trainer
