#include "commands/data_download.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/keys/key.h"
#include "base/log.h"
#include "commands/output.h"
#include "config/reader.h"
#include "datasets/registry.h"

namespace trainer::commands {
namespace {

std::vector<std::string> downloadable_datasets() {
  std::vector<std::string> names;
  for (const auto& component : datasets::dataset_registry().components()) {
    const auto options = component.make_options();
    KeyTable table;
    options->add_keys(table);
    if (std::ranges::find(table.keys(), "download", &Key::name) != table.keys().end()) names.push_back(component.name);
  }
  return names;
}

}  // namespace

void add_download_options(CLI::App& app, DownloadArguments& arguments) {
  const auto choices = downloadable_datasets();
  app.add_option("name", arguments.names, "one or more of " + CLI::detail::join(choices, ", "))
      ->required()
      ->check(CLI::IsMember(choices))
      ->type_name("NAME");
  app.add_option("--root", arguments.root, "the folder in which to put them, by default data")->type_name("FOLDER");
}

void download(const DownloadArguments& arguments) {
  const auto& [names, root] = arguments;
  const auto logger = make_console_logger();
  const auto& registry = datasets::dataset_registry();
  for (const auto& name : names) {
    const auto yaml = fmt::format("[{}: {{root: {}, download: true}}]", name, nlohmann::json(root).dump());
    const auto dataset = registry.make(config::read_components(yaml, "--root", registry).front());
    const auto num_train = dataset.open(data::Split::kTrain, *logger)->size();
    const auto num_validation = dataset.open(data::Split::kValidation, *logger)->size();
    if (is_standard_output_closed()) continue;
    print("{}: {} training and {} validation images in {}\n", name, num_train, num_validation, root);
  }
}

}  // namespace trainer::commands
