#pragma once
// How deeply the values of a JSON text lie in each other. nlohmann/json copies and prints them by recursion, so that a hostile file could
// overflow the stack.

#include <string_view>

namespace trainer {

// No file of a run directory has more.
constexpr int kMostJsonLevels = 100;

// The most arrays and objects around a value of the text.
int count_json_levels(std::string_view text);

}  // namespace trainer
