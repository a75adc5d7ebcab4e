#include "session/plugins.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <filesystem>
#include <set>
#include <string_view>
#include <vector>

#include "trainer/error.h"
#include "trainer/version.h"

namespace trainer::session {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVersion = TRAINER_VERSION " with LibTorch " TORCH_VERSION;

// What has to be equal in a plug-in: below 1.0, the third number of the version is not part of the interface.
std::string interface_of(std::string_view version) {
  const auto second = version.find('.', version.find('.') + 1);
  const auto rest = version.find(' ');
  return std::string(version.substr(0, second)) + (rest == std::string_view::npos ? "" : std::string(version.substr(rest)));
}

std::set<fs::path>& loaded_names() {
  static std::set<fs::path> names;
  return names;
}

template <class Function>
Function function_of(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

bool is_plugin_loaded(const std::string& file) { return loaded_names().contains(fs::path(file).filename()); }

void load_plugin(const std::string& file) {
  static std::set<void*> loaded;
  std::error_code unreadable;
  const bool exists = fs::exists(file, unreadable);
  // It is never closed: components have functions in it.
  void* const library = dlopen(exists ? fs::absolute(file).c_str() : file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr && !exists) {
    throw UsageError(fmt::format("there is no plug-in \"{}\"{}; build it, or correct its path", file,
                                 file.find('/') == std::string::npos ? " in this folder, nor in those of LD_LIBRARY_PATH" : ""));
  }
  if (library == nullptr) {
    throw UsageError(
        fmt::format("the plug-in cannot be loaded: {}; build it with the library of this program, version {}", dlerror(), kVersion));
  }
  if (loaded.contains(library)) return;
  const auto version = function_of<const char* (*)()>(library, "trainer_plugin_version");
  const auto add_components = function_of<void (*)()>(library, "trainer_plugin_register");
  if (version == nullptr || add_components == nullptr) {
    throw UsageError(fmt::format("\"{}\" is not a plug-in of trainer; it has no function that begins with TRAINER_PLUGIN()", file));
  }
  if (interface_of(version()) != interface_of(kVersion)) {
    throw UsageError(fmt::format("the plug-in \"{}\" was built for trainer {}, and this is trainer {}; build it again with this version",
                                 file, version(), kVersion));
  }
  try {
    add_components();
  } catch (const std::exception& error) {
    throw UsageError(fmt::format("the plug-in \"{}\" cannot register its components: {}", file, error.what()));
  }
  loaded.insert(library);
  loaded_names().insert(fs::path(file).filename());
}

}  // namespace trainer::session
