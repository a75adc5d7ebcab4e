#pragma once
// Shared libraries that register components (trainer/registry.h).

#include <string>

namespace trainer::session {

// Loads a plug-in and calls its function that registers components; once for each file. A name without a slash that is no file of the
// working folder is looked for as the linker does (LD_LIBRARY_PATH). Throws UsageError. Call it before the registries are used.
void load_plugin(const std::string& file);

// Whether a plug-in of that name, in whatever folder, was loaded.
bool is_plugin_loaded(const std::string& file);

}  // namespace trainer::session
