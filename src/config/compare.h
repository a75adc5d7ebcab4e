#pragma once

#include <string>
#include <vector>

#include "config/node.h"

namespace trainer::config {

// The differences between two trees: "optimizer.lr: 0.1, not 0.2" for each value that differs, with the value of `theirs` first and that
// of `ours` second; "nothing" stands for a missing key.
std::vector<std::string> differences(const Node& ours, const Node& theirs);

}  // namespace trainer::config
