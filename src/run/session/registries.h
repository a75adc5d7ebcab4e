#pragma once

#include <string>
#include <vector>

#include "config/load.h"
#include "config/registries.h"

namespace trainer::session {

// The registries of all components that an experiment file can name.
config::Registries all_registries();

// Shared libraries that register components (trainer/registry.h).

// Loads a plug-in and calls its function that registers components; once for each file. A name without a slash that is no file of the
// working folder is looked for as the linker does (LD_LIBRARY_PATH). Throws UsageError. Call it before the registries are used. The version
// can only be checked once the linker has loaded the plug-in and what that needs.
void load_plugin(const std::string& file);

// Reads an experiment that is not a file of the user's, such as that of a checkpoint, as config::load_text(). It may come from anywhere, so
// the plug-ins that it names are not loaded; where they are missing, the error says how to load them.
config::Experiment load_without_plugins(const std::string& text, const std::string& source, const std::vector<std::string>& overrides,
                                        const config::Registries& registries);

}  // namespace trainer::session
