#include <fmt/format.h>

#include <array>

#include "commands/arguments.h"
#include "commands/command.h"
#include "session/registries.h"

namespace trainer::commands {

ExitCode list(const std::vector<std::string>& args) {
  const auto catalog = session::make_catalog();
  const std::array<std::pair<std::string, const config::Family*>, 6> families = {{{"models", &catalog.models},
                                                                                  {"datasets", &catalog.datasets},
                                                                                  {"transforms", &catalog.transforms},
                                                                                  {"optimizers", &catalog.optimizers},
                                                                                  {"lr_schedulers", &catalog.lr_schedulers},
                                                                                  {"losses", &catalog.losses}}};
  CLI::App app("The parts that an experiment file can name; `trainer config reference` shows their keys.", "trainer list");
  std::string which;
  std::vector<std::string> names;
  for (const auto& family : families) names.push_back(family.first);
  app.add_option("family", which, "one of " + CLI::detail::join(names, ", "))->required()->check(CLI::IsMember(names));
  parse(app, args);
  for (const auto& [name, family] : families) {
    if (name != which) continue;
    for (const auto& kind : *family) fmt::print("{:<24} {}\n", kind.name, kind.doc);
  }
  return ExitCode::kDone;
}

}  // namespace trainer::commands
