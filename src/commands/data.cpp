#include "commands/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "base/keys/key.h"
#include "base/log.h"
#include "base/signal.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "commands/command.h"
#include "commands/pictures.h"
#include "commands/run_end.h"
#include "commands/sample_progress.h"
#include "config/reader.h"
#include "data/dataset.h"
#include "data/sharded_sampler.h"
#include "datasets/dataset_registry.h"
#include "reporting/evaluation.h"
#include "run/recipe/advice.h"
#include "run/recipe/build.h"
#include "run/recipe/registries.h"
#include "run/samples/open_samples.h"

namespace trainer::commands {
namespace {

struct ShowOptions {
  std::filesystem::path output;
  int64_t epoch = 0;
  int64_t count = 64;
};

// A line for each class of these samples that the picture shows as a number, because its name has letters that cannot be drawn.
std::string numbered_classes(const data::Dataset& dataset, const data::SampleList& samples) {
  std::string lines;
  if (dataset.info().class_names.empty() || !dataset.info().has_labels()) return lines;
  std::set<int64_t> labels;
  for (const auto index : samples.indices) labels.insert(dataset.label(index));
  for (const auto label : labels) {
    const auto name = reporting::name_of_class(dataset.info().class_names, label);
    if (!is_drawable(name)) lines += fmt::format("\n  class {}: {}", label, name);
  }
  return lines;
}

void show(const config::Experiment& experiment, const ShowOptions& options) {
  refuse_to_overwrite(options.output);
  data::check_image_extension(options.output);
  const auto logger = make_console_logger();
  const auto [train, validation] = samples::open_samples(experiment, *logger);
  const auto& dataset = train.dataset();
  if (!dataset.info().is_image)
    throw UsageError(fmt::format("dataset.name: the samples of {} are not images, so they cannot be shown; choose a data set of images",
                                 experiment.dataset.component.name));
  refuse_picture_over(dataset, options.output);
  if (validation) refuse_picture_over(validation->dataset(), options.output);
  data::ShardedSampler sampler(recipe::make_sampler(recipe::recipe_of(experiment, *logger), train), {});
  sampler.set_epoch(options.epoch);
  const auto samples = sampler.samples();
  const auto size = static_cast<int64_t>(samples.size());
  const auto count = std::min(options.count, size);
  const auto shown = samples.slice(0, count);
  data::write_image_file(options.output, draw_sample_grid(experiment, dataset, shown, options.epoch));
  print_written(options.output, "the first {} of {} training images in epoch {}{}", count, size, options.epoch,
                numbered_classes(dataset, shown));
}

// A sample that cannot be used.
struct UnusableSample {
  const char* part;
  std::string name;
  std::string reason;
};

// Adds the samples that cannot be used to `unusable`, and the others to the notes.
void check_samples(const char* part, const data::Dataset& dataset, int num_threads, recipe::ImageNotes& notes,
                   std::vector<UnusableSample>& unusable, Logger& logger) {
  SampleProgress progress(fmt::format("{}: read", part), logger);
  const auto report = [&](int64_t num_read) {
    progress.update(num_read, dataset.size());
    return stop_signal() == 0;
  };
  notes.begin_part(part, dataset);
  const auto visit = [&](int64_t index, const data::Sample& sample, const data::ImageView& /*image*/) {
    if (dataset.info().is_image) notes.add(index, sample);
  };
  const auto unreadable = data::find_unreadable_samples(dataset, num_threads, report, visit);
  progress.clear();
  for (const auto& [index, reason] : unreadable) unusable.push_back({part, printable_line(dataset.describe(index)), reason});
}

ExitCode check(const config::Experiment& experiment, int num_threads, bool as_json) {
  install_stop_handlers();
  const auto logger = make_console_logger();
  const auto [train, validation] = samples::open_samples(experiment, *logger);
  const auto num_samples = train.size() + (validation ? validation->size() : 0);
  recipe::ImageNotes notes;
  std::vector<UnusableSample> unusable;
  check_samples("training", train.dataset(), num_threads, notes, unusable, *logger);
  if (validation && stop_signal() == 0) check_samples("validation", validation->dataset(), num_threads, notes, unusable, *logger);
  const bool is_stopped = stop_signal() != 0;
  if (!as_json) {
    for (const auto& sample : unusable) print("{} {}: {}\n", sample.part, sample.name, sample.reason);
  }
  if (is_stopped) throw Error("stopped on request before all samples were read", ExitCode::kStopped);
  const auto sentences = notes.sentences();
  for (const auto& sentence : sentences) logger->warn("{}", sentence);
  if (as_json) {
    auto samples = reporting::Json::array();
    for (const auto& [part, name, reason] : unusable) samples.push_back({{"part", part}, {"sample", name}, {"reason", reason}});
    cli::print_json({{"samples", num_samples}, {"unusable", std::move(samples)}, {"warnings", sentences}}, 2);
  } else {
    print("{} read, {}\n", counted(num_samples, "sample"),
          unusable.empty() ? "all good" : fmt::format("{} cannot be used", unusable.size()));
  }
  return unusable.empty() ? ExitCode::kDone : ExitCode::kData;
}

std::vector<std::string> downloadable_datasets() {
  std::vector<std::string> names;
  for (const auto& component : datasets::dataset_registry().components()) {
    const auto options = component.make_options();
    if (SectionKeys(*options).find("download") != nullptr) names.push_back(component.name);
  }
  return names;
}

// Throws DataError if a data set cannot be obtained.
void download(const std::vector<std::string>& names, const std::string& root) {
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

}  // namespace

ExitCode data(const std::vector<std::string>& args) {
  CLI::App app("Downloads, checks, audits, shows and packs data sets.", "trainer data");
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
  bool as_json = false;
  checks->add_flag("--json", as_json, "print one JSON value");
  int num_threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  AuditArguments audit_arguments;
  auto* audits = app.add_subcommand(
      "audit",
      "read all samples, and find problems that make results wrong: the same image in two parts or with two labels, even if one copy was "
      "saved again, resized or slightly cropped; classes without training images; samples that cannot be read. The exit code is 3 if there "
      "are any. Unusual images and images that occur twice in one part are only noted");
  cli::add_experiment(*audits, source);
  add_audit_options(*audits, audit_arguments);
  PackArguments pack_arguments;
  auto* packs =
      app.add_subcommand("pack", "copy a data set into LMDB, for dataset.name=lmdb; after an interruption, the same command continues");
  cli::add_experiment(*packs, source);
  add_pack_options(*packs, pack_arguments);
  for (auto* command : {checks, audits, packs}) {
    command->add_option("--threads", num_threads, "number of reading threads; default: one for each CPU thread")
        ->check(CLI::Range(1, 1024));
  }
  auto* downloads = app.add_subcommand("download", "download public data sets, unless they already exist");
  std::vector<std::string> names;
  const auto choices = downloadable_datasets();
  downloads->add_option("name", names, "one or more of " + join(choices, ", "))
      ->required()
      ->check(CLI::IsMember(choices))
      ->type_name("NAME");
  std::string root = "data";
  downloads->add_option("--root", root, "the folder to download to; default: data")->type_name("FOLDER");
  cli::parse(app, args);

  if (downloads->parsed()) {
    download(names, root);
    return ExitCode::kDone;
  }
  const auto experiment = config::load(source.file, source.overrides, recipe::all_registries());
  if (checks->parsed()) return check(experiment, num_threads, as_json);
  if (audits->parsed()) return audit(experiment, source, audit_arguments, num_threads);
  if (packs->parsed()) pack(experiment, pack_arguments, num_threads);
  if (shows->parsed()) show(experiment, options);
  return ExitCode::kDone;
}

}  // namespace trainer::commands
