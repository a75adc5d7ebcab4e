// Checks the keys that documents show.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <regex>

#include "base/file.h"
#include "config/load.h"
#include "run/recipe/registries.h"
#include "trainer/error.h"

namespace trainer::recipe {
namespace {

constexpr const char* kAnyExperiment =
    "experiment: a\n"
    "model: {name: resnet20, freeze: [backbone]}\n"
    "dataset: {name: cifar10, root: data}\n"
    "optimizer: {name: sgd, lr: 0.1, momentum: 0.9}\n"
    "training: {epochs: 100}\n";

// Returns each `section.key: value` and each `- transform: {…}` of a document's text as an override.
std::vector<std::string> overrides_in(const std::string& text) {
  static const std::regex code("`(- )?([a-z_]+(?:\\.[a-z_]+)*): ([^`]+)`");
  std::vector<std::string> overrides;
  for (std::sregex_iterator match(text.begin(), text.end(), code), end; match != end; ++match) {
    const std::string key = (*match)[2], value = (*match)[3];
    // Skips abbreviated values, and values that need a folder of images.
    if (value.find("…") != std::string::npos || value.find("image_folder") != std::string::npos) continue;
    overrides.push_back((*match)[1].matched ? fmt::format("dataset.train_transforms=[{}: {}]", key, value)
                                            : fmt::format("{}={}", key, value));
  }
  return overrides;
}

TEST(Docs, KeysShownWithAValueAreAccepted) {
  for (const std::string file : {"from_pytorch.md", "distributed.md", "training.md"}) {
    const auto overrides = overrides_in(read_file(TRAINER_SOURCE_DIR "/docs/" + file));
    EXPECT_GE(overrides.size(), 3) << file;
    for (const auto& override_text : overrides) {
      try {
        config::load_text(kAnyExperiment, "x.yaml", {override_text}, all_registries());
      } catch (const UsageError& error) {
        ADD_FAILURE() << file << ": " << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace trainer::recipe
