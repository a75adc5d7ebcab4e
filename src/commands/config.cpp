#include "base/printable.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "commands/output.h"
#include "config/reference.h"
#include "session/registries.h"

namespace trainer::commands {

ExitCode config(const std::vector<std::string>& args) {
  CLI::App app("Shows the keys of experiment files.", "trainer config");
  app.require_subcommand(1);

  auto* reference = app.add_subcommand("reference", "show every key with type, default, range, unit and meaning");
  std::string format = "text";
  reference->add_option("--format", format, "text or markdown")->check(CLI::IsMember({"text", "markdown"}));

  auto* show = app.add_subcommand("show", "show a file with its overrides and defaults, as training uses it");
  config::ExperimentSource source;
  cli::add_experiment(*show, source);

  cli::parse(app, args);
  const auto registries = session::all_registries();
  if (reference->parsed()) {
    print("{}", format == "text" ? config::reference_text(registries) : config::reference_markdown(registries));
  } else {
    auto experiment = config::load(source.file, source.overrides, registries);
    print("{}", config::to_yaml(experiment, registries));
    for (const auto& warning : experiment.warnings) fmt::print(stderr, "warning: {}\n", printable(warning));
  }
  return ExitCode::kDone;
}

}  // namespace trainer::commands
