#include "config/reference.h"

#include <gmock/gmock.h>

#include "tests/unit/config/small_registries.h"

namespace trainer::config {
namespace {

std::string shown(const std::string& name, ReferenceFormat format = ReferenceFormat::kText) {
  try {
    return reference(small_registries(), format, name);
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Reference, NamesEveryKeyWithItsDefault) {
  const auto text = shown("");
  EXPECT_NE(text.find("every_steps            integer, >= 1, steps; default 50"), std::string::npos) << text;
  EXPECT_NE(text.find("optimizer, name: adamw"), std::string::npos);
  EXPECT_NE(text.find("transform crop"), std::string::npos);
  EXPECT_NE(text.find("ema                    section or null; default null"), std::string::npos);
  EXPECT_NE(text.find("sampler                section; default {name: shuffled}"), std::string::npos);
  EXPECT_NE(text.find("dataloader.sampler, name: rated"), std::string::npos);
  EXPECT_NE(text.find("training.ema: An exponential moving average"), std::string::npos);
  const auto markdown = shown("", ReferenceFormat::kMarkdown);
  EXPECT_NE(markdown.find("| `device` | auto \\| cpu \\| cuda | `auto` |"), std::string::npos) << markdown;
}

TEST(Reference, OfOneSectionComponentOrKey) {
  const std::string lr = "  lr                     number, > 0; default 0.1\n                         Learning rate.\n";
  const std::string momentum = "  momentum               number, 0 to 1 (1 excluded); default 0\n                         Momentum.\n";
  EXPECT_EQ(shown("optimizer.sgd"), "optimizer, name: sgd: A sgd.\n" + lr + momentum + "\n");
  EXPECT_EQ(shown("optimizer.sgd.lr"), "optimizer, name: sgd: A sgd.\n" + lr + "\n");
  EXPECT_EQ(shown("optimizer.lr"), "optimizer, name: sgd: A sgd.\n" + lr + "\noptimizer, name: adamw: A adamw.\n" + lr + "\n");
  EXPECT_EQ(shown("transform.flip"), "transform flip: A flip.\n  (no keys)\n\n");
  EXPECT_TRUE(shown("loss").starts_with("loss: The function that is minimised.\n  name "));
  EXPECT_EQ(shown("loss").find("cross_entropy: "), std::string::npos);
  EXPECT_TRUE(shown("seed").starts_with("top level\n  seed                   integer, >= 0; default 42\n"));
  EXPECT_EQ(shown("seed").find("output_dir"), std::string::npos);
  EXPECT_TRUE(shown("training.epochs").starts_with("training: The training loop.\n  epochs "));
  EXPECT_TRUE(shown("training.ema").find("  decay ") != std::string::npos);
  EXPECT_TRUE(shown("training.ema.decay").find("  warmup ") == std::string::npos);
  EXPECT_TRUE(shown("dataloader.sampler.rated").starts_with("dataloader.sampler, name: rated"));
  EXPECT_TRUE(shown("seed", ReferenceFormat::kMarkdown).starts_with("\n## top level\n\n| key | type |"));
}

TEST(Reference, UnknownNamesGetASuggestion) {
  const auto unknown = [](const std::string& name, const std::string& near) {
    return "\"" + name + "\" is neither a section, a component nor a key" + (near.empty() ? "" : " (did you mean \"" + near + "\"?)") +
           "; `trainer config reference` shows all";
  };
  EXPECT_EQ(shown("optimiser"), unknown("optimiser", "optimizer"));
  EXPECT_EQ(shown("optimizer.sdg"), unknown("optimizer.sdg", "optimizer.sgd"));
  EXPECT_EQ(shown("training.epoch"), unknown("training.epoch", "training.epochs"));
  EXPECT_EQ(shown("crop"), unknown("crop", "transform.crop"));
  EXPECT_EQ(shown("epochs"), unknown("epochs", "training.epochs"));
  EXPECT_EQ(shown("xyzzy"), unknown("xyzzy", ""));
}

}  // namespace
}  // namespace trainer::config
