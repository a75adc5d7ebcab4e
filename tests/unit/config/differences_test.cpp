#include "config/differences.h"

#include <gtest/gtest.h>

#include "tests/unit/config/small_registries.h"

namespace trainer::config {
namespace {

std::vector<Difference> changes_by(const std::vector<std::string>& overrides, const std::vector<std::string>& overrides_then = {}) {
  const auto values = [](const std::vector<std::string>& texts) { return values_of(loaded(kMinimal, texts), small_registries()); };
  return differences(values(overrides_then), values(overrides));
}

TEST(Compare, ASectionThatIsNullOnOneSideDiffersInTheKeysOfTheOther) {
  EXPECT_EQ(to_string(changes_by({"training.ema.decay=0.5"})), "training.ema.decay: 0.5, not unset; training.ema.warmup: true, not unset");
  EXPECT_EQ(to_string(changes_by({}, {"training.ema.decay=0.5"})),
            "training.ema.decay: unset, not 0.5; training.ema.warmup: unset, not true");
  EXPECT_TRUE(changes_by({"dataset={name: data}"}).empty());
}

TEST(Compare, DifferencesKnowWhetherARunCanBeResumed) {
  const auto is_refused = [](const std::string& override_text, const std::vector<std::string>& then = {}) {
    const auto changes = changes_by({override_text}, then);
    EXPECT_FALSE(changes.empty()) << override_text;
    return changes.at(0).facts.is_fixed_on_resume;
  };
  for (const char* text : {"seed=1", "model.stem=other", "model.name=bare", "dataset.stratify=false", "dataset.split={}",
                           "dataloader.sampler.name=rated", "optimizer.name=adamw", "optimizer.layer_decay=0.5",
                           "optimizer.groups=[{parameters: [a]}]", "training.overfit_batches=1", "task.name=regression"}) {
    EXPECT_TRUE(is_refused(text)) << text;
  }
  EXPECT_TRUE(is_refused("dataset.split=null", {"dataset.split={}"}));
  for (const char* text :
       {"model.weights=a", "model.init_strict=false", "optimizer.lr=0.5", "dataset.train_transforms=[flip]", "training.epochs=9"}) {
    EXPECT_FALSE(is_refused(text)) << text;
  }
  // A tree that was only parsed has no facts.
  const auto parsed = values_of(parse_yaml("seed: 1\ntraining: {ema: null}\n", "x.yaml"));
  const auto changes = differences(parsed, values_of(loaded(kMinimal), small_registries()));
  EXPECT_EQ(to_string(changes.front()), "seed: 42, not 1");
  EXPECT_TRUE(changes.front().facts.is_fixed_on_resume);
}

}  // namespace
}  // namespace trainer::config
