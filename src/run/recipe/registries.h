#pragma once

#include <string>
#include <vector>

#include "config/load.h"
#include "config/registries.h"

namespace trainer::recipe {

// The registries of all components that an experiment file can name.
config::Registries all_registries();
// The same for an experiment that is neither completed nor checked with its data set.
config::Registries registries_without_check();

// Shared libraries that register components (trainer/registry.h).

// Loads a plug-in and calls its function that registers components, once for each file. A name without a slash that is not a file in the
// working folder is searched for like other shared libraries (LD_LIBRARY_PATH). Throws UsageError. To be called before the registries are
// used. The version can be checked only after the linker has loaded the plug-in and its dependencies.
void load_plugin(const std::string& file);

// Like config::load_text(), for an experiment that is not the user's own file, such as that of a checkpoint. It may be from an untrusted
// source, so its plug-ins are not loaded; if they are missing, the error message explains how to load them.
config::Experiment load_without_plugins(const std::string& text, const std::string& source, const std::vector<std::string>& overrides,
                                        const config::Registries& registries,
                                        config::UnknownKeys unknown_keys = config::UnknownKeys::kRefuse);

}  // namespace trainer::recipe
