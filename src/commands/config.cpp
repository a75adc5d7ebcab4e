#include "base/text.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "config/differences.h"
#include "config/reference.h"
#include "config/schema.h"
#include "run/recipe/registries.h"

namespace trainer::commands {

ExitCode config(const std::vector<std::string>& args) {
  CLI::App app("Shows the keys of experiment files.", "trainer config");
  app.require_subcommand(1);

  auto* reference = app.add_subcommand("reference", "show keys with type, default, range, unit and meaning");
  std::string name;
  reference->add_option("name", name, "a section (optimizer), a component (optimizer.sgd) or a key (training.epochs); default: everything");
  std::string format = "text";
  reference->add_option("--format", format, "text or markdown")->check(CLI::IsMember({"text", "markdown"}));
  add_plugin_option(*reference);

  auto* show = app.add_subcommand("show", "show a file with overrides and defaults applied, as training uses it");
  config::ExperimentSource source;
  cli::add_experiment(*show, source);
  bool with_origins = false;
  show->add_flag("--origin", with_origins,
                 "list each value with its origin: a line of a file, the command line, the default or the data set");

  auto* schema = app.add_subcommand("schema", "print the JSON Schema of experiment files, with which editors complete and check them");
  add_plugin_option(*schema);

  cli::parse(app, args);
  const auto registries = recipe::all_registries();
  if (reference->parsed()) {
    print("{}",
          config::reference(registries, format == "text" ? config::ReferenceFormat::kText : config::ReferenceFormat::kMarkdown, name));
  } else if (schema->parsed()) {
    print("{}\n", config::schema(registries).dump(1));
  } else {
    const auto experiment = config::load(source.file, source.overrides, registries);
    print("{}", with_origins ? config::values_with_origins(experiment, registries) : config::to_yaml(experiment, registries));
    for (const auto& warning : experiment.warnings) fmt::print(stderr, "warning: {}\n", printable(warning));
  }
  return ExitCode::kDone;
}

}  // namespace trainer::commands
