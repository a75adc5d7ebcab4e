#include <fmt/format.h>

#include <utility>

#include "base/text.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "run/recipe/registries.h"

namespace trainer::commands {
namespace {

using Family = std::pair<std::string, const RegistryBase*>;

std::vector<Family> families(const config::Registries& registries) {
  return {{"models", &registries.models},
          {"layers", &registries.layers},
          {"datasets", &registries.datasets},
          {"transforms", &registries.transforms},
          {"batch_transforms", &registries.batch_transforms},
          {"samplers", &registries.samplers},
          {"optimizers", &registries.optimizers},
          {"lr_schedulers", &registries.lr_schedulers},
          {"tasks", &registries.tasks},
          {"losses", &registries.losses},
          {"sinks", &registries.sinks}};
}

}  // namespace

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const auto& family : families(recipe::all_registries())) names.push_back(family.first);
  return names;
}

ExitCode list(const std::vector<std::string>& args) {
  CLI::App app("Lists the components that an experiment file can name; `trainer config reference` shows their keys.", "trainer list");
  std::string which;
  const auto names = family_names();
  app.add_option("family", which, "one of " + join(names, ", ") + "; default: all families")
      ->check(CLI::IsMember(names))
      ->option_text("NAME");  // the description lists the names already
  add_plugin_option(app);
  cli::parse(app, args);
  const auto registries = recipe::all_registries();
  if (which.empty()) {
    for (const auto& [name, registry] : families(registries)) {
      print("{}", cli::wrap_help(fmt::format("{:<18}{}", name,
                                             registry->names().empty() ? "(only those of plug-ins)" : join(registry->names(), ", "))));
    }
    print("\n`trainer list FAMILY` describes each of them.\n");
    return ExitCode::kDone;
  }
  for (const auto& [name, registry] : families(registries)) {
    if (name != which) continue;
    if (registry->names().empty()) print("This family has no built-in components; --plugin FILE shows those of a plug-in.\n");
    for (const auto& component : registry->components()) print("{:<24} {}\n", component.name, component.doc);
  }
  return ExitCode::kDone;
}

}  // namespace trainer::commands
