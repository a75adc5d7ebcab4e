#pragma once
// The runs of `trainer sweep`.

#include <string>
#include <utility>
#include <vector>

#include "commands/run_set.h"

namespace trainer::commands {

// The values of "0.1,[1, 2],{name: sgd, lr: 1}", which is read as a YAML list; one value if that is not possible.
std::vector<std::string> split_values(const std::string& text);

// A key with several values.
using VariedKey = std::pair<std::string, std::vector<std::string>>;

// Moves the overrides that list several values, such as "seed=1,2", to the result. Throws one UsageError with all problems: a value
// or a key that is given twice, and no list at all.
std::vector<VariedKey> take_varied_keys(std::vector<std::string>& overrides);

// A run for each combination of the values, those of the last key changing first. A run is named by its values, "lr=0.1,seed=2", so that a
// longer list continues a sweep. A key's last part stands for it if that is unique.
std::vector<RunSet::Run> combine(const std::vector<VariedKey>& keys);

}  // namespace trainer::commands
