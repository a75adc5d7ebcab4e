#pragma once

#include <string>
#include <vector>

namespace trainer::commands {

// The families of components: what `trainer list FAMILY` can list.
std::vector<std::string> family_names();

}  // namespace trainer::commands
