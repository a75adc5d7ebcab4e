#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainer::state {

// Whether `names` contains `entry` (the name of a parameter or module) or the name of a module to which `entry` belongs: "layer1" for
// "layer1.0.conv1.weight".
bool is_in(std::string_view entry, const std::vector<std::string>& names);

}  // namespace trainer::state
