#include <fmt/format.h>

#include <array>

#include "base/text.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "commands/output.h"
#include "session/registries.h"

namespace trainer::commands {

ExitCode list(const std::vector<std::string>& args) {
  const auto registries = session::all_registries();
  const std::array<std::pair<std::string, const config::RegistryBase*>, 8> kinds = {{{"models", &registries.models},
                                                                                     {"datasets", &registries.datasets},
                                                                                     {"transforms", &registries.transforms},
                                                                                     {"batch_transforms", &registries.batch_transforms},
                                                                                     {"samplers", &registries.samplers},
                                                                                     {"optimizers", &registries.optimizers},
                                                                                     {"lr_schedulers", &registries.lr_schedulers},
                                                                                     {"losses", &registries.losses}}};
  CLI::App app("Lists the components that an experiment file can name; `trainer config reference` shows their keys.", "trainer list");
  std::string which;
  std::vector<std::string> names;
  for (const auto& kind : kinds) names.push_back(kind.first);
  app.add_option("family", which, "one of " + join(names, ", ") + "; default: the names of all")
      ->check(CLI::IsMember(names))
      ->option_text("NAME");  // not the names once more
  cli::parse(app, args);
  if (which.empty()) {
    for (const auto& [name, registry] : kinds)
      fmt::print("{}", cli::wrap_help(fmt::format("{:<18}{}", name, join(registry->names(), ", "))));
    fmt::print("\n`trainer list FAMILY` says what each of them is.\n");
    return ExitCode::kDone;
  }
  for (const auto& [name, registry] : kinds) {
    if (name != which) continue;
    for (const auto& component : registry->components()) print("{:<24} {}\n", component.name, component.doc);
  }
  return ExitCode::kDone;
}

}  // namespace trainer::commands
