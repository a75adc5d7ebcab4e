#pragma once
// Every network that a configuration can name. A new one is a file pair beside this one and a line in registry.cpp.

#include <memory>
#include <vector>

#include "models/model.h"

namespace trainer::models {

const std::vector<ModelEntry>& registry();

config::Family model_family();
// `part` must come from model_family(). Throws UsageError when the options contradict each other.
std::shared_ptr<Model> make_model(const config::Part& part, const BuildContext& context);

}  // namespace trainer::models
