#pragma once
// timm's names of networks and of their weights.

#include <string>

namespace trainer::models {

// The name of the same network in timm; null: timm has none, or none that computes the same.
const char* timm_name_of(const std::string& model);

// The name in the network `model` of an entry that has this name in timm's network; other names stay as they are. The shape of an entry may
// differ, but not the order of its values.
std::string name_of_timm_entry(const std::string& model, const std::string& name);

}  // namespace trainer::models
