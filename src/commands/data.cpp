#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/log.h"
#include "base/plural.h"
#include "base/signal.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "commands/output.h"
#include "commands/sample_grid.h"
#include "config/reader.h"
#include "datasets/registry.h"
#include "input/unreadable_samples.h"
#include "session/build.h"
#include "session/registries.h"

namespace trainer::commands {
namespace {

struct ShowOptions {
  std::filesystem::path output;
  int64_t epoch = 0;
  int64_t count = 64;
};

void show(const config::Experiment& experiment, const ShowOptions& options) {
  const auto logger = make_console_logger();
  const auto data = session::open_samples(experiment, *logger);
  const auto& dataset = data.train.dataset();
  if (!dataset.info().is_image) throw UsageError(fmt::format("dataset.name: {} has no images to show", experiment.dataset.component.name));
  const auto count = std::min(options.count, dataset.size());
  input::write_image_file(options.output, draw_sample_grid(experiment, data, options.epoch, count));
  print("{}: the first {} of {} training images in epoch {}\n", options.output.string(), count, dataset.size(), options.epoch);
}

// Prints a line for each sample that cannot be used, and returns how many there are.
size_t check_samples(const char* part, const input::Dataset& dataset, int num_threads, Logger& logger) {
  const int64_t size = dataset.size();
  int64_t tenths = 0;
  const auto unreadable = input::find_unreadable_samples(dataset, num_threads, [&](int64_t num_read) {
    if (stop_signal() != 0) return false;
    if (num_read * 10 / size > tenths) {
      tenths = num_read * 10 / size;
      logger.info("{}: read {} of {} samples", part, num_read, size);
    }
    return true;
  });
  for (const auto& [index, reason] : unreadable) print("{} {}: {}\n", part, dataset.describe(index), reason);
  if (stop_signal() != 0) throw Error("stopped on request before all samples were read", ExitCode::kStopped);
  return unreadable.size();
}

ExitCode check(const config::Experiment& experiment, int num_threads) {
  const auto logger = make_console_logger();
  const auto data = session::open_samples(experiment, *logger);
  const auto num_samples = data.train.dataset().size() + data.validation.dataset().size();
  const auto num_unreadable = check_samples("training", data.train.dataset(), num_threads, *logger) +
                              check_samples("validation", data.validation.dataset(), num_threads, *logger);
  print("{} read, {}\n", counted(num_samples, "sample"),
        num_unreadable == 0 ? "all good" : fmt::format("{} cannot be used", num_unreadable));
  return num_unreadable == 0 ? ExitCode::kDone : ExitCode::kData;
}

std::vector<std::string> downloadable_datasets() {
  std::vector<std::string> names;
  for (const auto& component : datasets::dataset_registry().components()) {
    const auto options = component.make_options();
    config::KeyTable table;
    options->describe(table);
    if (std::ranges::find(table.keys(), "download", &config::Key::name) != table.keys().end()) names.push_back(component.name);
  }
  return names;
}

void download(const std::vector<std::string>& names, const std::string& root) {
  const auto logger = make_console_logger();
  const auto& registry = datasets::dataset_registry();
  for (const auto& name : names) {
    const auto yaml = fmt::format("[{}: {{root: {}, download: true}}]", name, nlohmann::json(root).dump());
    const auto dataset = registry.make(config::read_components(yaml, "--root", registry).front());
    const auto num_train = dataset.open(datasets::Split::kTrain, *logger)->size();
    const auto num_validation = dataset.open(datasets::Split::kValidation, *logger)->size();
    print("{}: {} training and {} validation images in {}\n", name, num_train, num_validation, root);
  }
}

}  // namespace

ExitCode data(const std::vector<std::string>& args) {
  CLI::App app("Downloads, shows and checks data sets.", "trainer data");
  app.require_subcommand(1);
  config::ExperimentSource source;
  ShowOptions options;
  auto* shows = app.add_subcommand("show", "write a picture of training images, transformed as in training");
  cli::add_experiment(*shows, source);
  shows->add_option("--output", options.output, "the picture (.png or .jpg)")->required()->type_name("FILE");
  shows->add_option("--count", options.count, "number of images")->check(CLI::Range(int64_t{1}, int64_t{10000}));
  shows->add_option("--epoch", options.epoch, "the epoch whose images to show, from 0")->check(CLI::NonNegativeNumber);
  auto* checks =
      app.add_subcommand("check", "read and decode all samples, and list those that cannot be used; the exit code is 3 if there are any");
  cli::add_experiment(*checks, source);
  int num_threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  checks->add_option("--threads", num_threads, "threads that read, by default one for each processor")->check(CLI::Range(1, 1024));
  std::vector<std::string> names;
  std::string root = "data";
  auto* downloads = app.add_subcommand("download", "fetch public data sets, unless they are there already");
  const auto choices = downloadable_datasets();
  downloads->add_option("name", names, "one or more of " + CLI::detail::join(choices, ", "))
      ->required()
      ->check(CLI::IsMember(choices))
      ->type_name("NAME");
  downloads->add_option("--root", root, "the folder in which to put them, by default data")->type_name("FOLDER");
  cli::parse(app, args);

  if (downloads->parsed()) {
    download(names, root);
    return ExitCode::kDone;
  }
  const auto experiment = config::load(source.file, source.overrides, session::all_registries());
  if (checks->parsed()) return check(experiment, num_threads);
  show(experiment, options);
  return ExitCode::kDone;
}

}  // namespace trainer::commands
