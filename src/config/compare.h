#pragma once

#include <string>
#include <vector>

#include "config/node.h"

namespace trainer::config {

// Where two trees differ: "optimizer.lr: 0.1, not 0.2" for each value that is `theirs`, not `ours`; "nothing" stands for a key that is not
// there.
std::vector<std::string> differences(const Node& ours, const Node& theirs);

}  // namespace trainer::config
