#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "commands/command.h"
#include "commands/run_end.h"
#include "commands/sample_progress.h"
#include "config/reader.h"
#include "config/schema.h"
#include "data/transforms/transform.h"
#include "datasets/csv.h"
#include "datasets/dataset_registry.h"
#include "device/cuda_module.h"
#include "run/recipe/advice.h"
#include "run/recipe/registries.h"
#include "run/survey/image_survey.h"
#include "run/survey/starting_file.h"

namespace trainer::commands {
namespace {

namespace fs = std::filesystem;
using data::Split;
using survey::DatasetFacts;

// More images would hardly change the statistics of sizes and pixels.
constexpr int64_t kMostMeasured = 2000;

// Calls read(report), and shows the progress.
template <class Read>
auto with_progress(const std::string& what, size_t size, Logger& logger, const Read& read) {
  SampleProgress progress(what, logger, 0, kLongWait);
  return read([&](int64_t num_read) { progress.update(num_read, static_cast<int64_t>(size)); });
}

Node section_of(const std::string& dataset, const std::string& key, const fs::path& path) {
  auto section = Node::map();
  section.set("name", Node::scalar(dataset));
  section.set(key, Node::scalar(path.string()));
  return section;
}

// The possible sections `dataset` for `data`.
std::vector<Node> candidates(const fs::path& data) {
  std::vector<Node> sections;
  // For a CSV file, a section for each kind of targets.
  const auto add_csv = [&](const Node& section) {
    for (const char* targets : {"", "classes", "numbers"}) {
      sections.push_back(section);
      if (*targets != '\0') sections.back().set("targets", Node::scalar(targets));
    }
    return sections;
  };
  if (data.extension() == ".csv") return add_csv(section_of("csv", "train", data));
  for (const char* name : {"lmdb", "cifar10", "cifar100", "mnist", "fashion_mnist", "tiny_imagenet"}) {
    sections.push_back(section_of(name, "root", data));
  }
  if (fs::exists(data / "train.csv")) {
    auto section = section_of("csv", "train", data / "train.csv");
    for (const char* name : {"val.csv", "validation.csv"}) {
      if (fs::exists(data / name)) section.set("validation", Node::scalar((data / name).string()));
    }
    add_csv(section);
  }
  sections.push_back(section_of("image_folder", "root", data));
  return sections;
}

data::DatasetFactory make_factory(const Node& section) {
  auto root = Node::map();
  root.set("experiment", Node::scalar("init"));
  root.set("model", Node::map()).set("name", Node::scalar("resnet18"));
  root.set("training", Node::map()).set("epochs", Node::scalar("1"));
  root.set("dataset", section);
  const auto experiment = config::load_tree(std::move(root), recipe::registries_without_check());
  return datasets::dataset_registry().make(experiment.dataset.component);
}

struct FoundData {
  Node section;
  data::DatasetFactory factory;
  std::unique_ptr<data::Dataset> train;
};

// Whether the labels of a CSV file are lists of several classes, or numbers of a regression (at least one with a fraction).
bool are_other_targets(const data::DatasetInfo& info) {
  const auto& names = info.class_names;
  const auto is_number = [](const std::string& name) { return parse_number<double>(name).has_value(); };
  const auto has = [&](char c) {
    return std::ranges::any_of(names, [&](const std::string& name) { return name.find(c) != std::string::npos; });
  };
  return has(';') || (has('.') && std::ranges::all_of(names, is_number));
}

// Whether the section's key `targets` (if missing: one class) is likely to fit the CSV file.
bool may_have_targets(const Node& section, const data::DatasetInfo& info) {
  const auto* given = section.find("targets");
  const fs::path file = section.find("train")->value.text;
  // The paths, and one column of labels or of lists of labels.
  const bool is_one_column = datasets::first_line_of(file).size() == 2;
  if (given == nullptr) return !are_other_targets(info);
  if (!is_one_column) return true;
  return given->value.text == "numbers" || read_file(file).find(';') != std::string::npos;
}

FoundData find_data(const fs::path& data, Logger& logger) {
  if (!fs::exists(data)) throw UsageError(fmt::format("--data {}: there is no such file or folder; correct the path", data.string()));
  auto sections = candidates(data);
  const bool is_csv = data.extension() == ".csv";
  std::string problem, reason;  // of the first candidate; of the last one, a folder as image_folder
  for (auto& section : sections) {
    auto factory = make_factory(section);
    if (problem.empty()) problem = factory.missing;
    reason = factory.missing;
    if (section.find("name")->value.text == "csv" && !may_have_targets(section, factory.info)) continue;
    if (!factory.missing.empty() || !factory.info.is_image) continue;
    try {
      auto train = factory.open(Split::kTrain, logger);
      return {std::move(section), std::move(factory), std::move(train)};
    } catch (const DataError& error) {
      if (&section == &sections.back() && !is_csv) throw;
      if (problem.empty()) problem = error.what();
    }
  }
  if (is_csv) throw DataError(fmt::format("--data {}: {}", data.string(), problem));
  throw DataError(fmt::format(
      "--data {}: no data set is recognised there: {}; train.csv and the files of lmdb, cifar10, cifar100, mnist, fashion_mnist "
      "and tiny_imagenet are missing, too",
      data.string(), reason));
}

// The name of the folder or CSV file, reduced to characters that are valid in the name of a run.
std::string experiment_name(const fs::path& data) {
  const auto path = fs::weakly_canonical(data);
  auto name = (path.extension() == ".csv" ? path.stem() : path.filename()).string();
  for (char& c : name) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    if (!is_plain) c = '_';
  }
  return name.empty() ? "experiment" : name;
}

// The sizes of at most kMostMeasured images. Warns of those that cannot be read, and counts them in `facts`.
survey::ImageSizes survey(const char* part, const data::Dataset& dataset, DatasetFacts& facts, recipe::ImageNotes& notes, Logger& logger) {
  notes.begin_part(part, dataset);
  const auto indices = data::evenly_spaced(dataset.size(), kMostMeasured);
  auto sizes = with_progress("sizes: read", indices.size(), logger,
                             [&](const auto& report) { return survey::find_sizes(dataset, indices, notes, report); });
  facts.num_read += static_cast<int64_t>(indices.size());
  facts.num_unreadable += sizes.num_unreadable;
  if (sizes.num_unreadable > 0) {
    logger.warn(
        "{} of {} examined {} images cannot be read; training will skip all that it cannot read (dataset.on_error: skip); the first is {}",
        sizes.num_unreadable, indices.size(), part, sizes.first_unreadable);
  }
  return sizes;
}

// `has_warned`: set if images cannot be read or look unintended.
std::string file_for(const fs::path& data, bool may_use_weights, Logger& logger, bool& has_warned) {
  // Before any other use of LibTorch.
  const bool has_gpu = device::open_cuda_module().module != nullptr;
  const auto warnings = make_console_logger();
  warnings->set_level(spdlog::level::warn);
  auto found = find_data(data, *warnings);
  const auto& train = *found.train;
  DatasetFacts facts{.name = experiment_name(data),
                     .section = found.section,
                     .info = train.info(),
                     .may_use_weights = may_use_weights,
                     .has_gpu = has_gpu};
  if (found.section.find("name")->value.text == "image_folder") {
    std::vector<std::string> images;
    for (int64_t i = 0; i < train.size(); ++i) images.push_back(train.origin(i).key);
    auto findings = survey::judge_folders(images);
    if (!findings.refusal.empty()) throw DataError(fmt::format("--data {}: {}", data.string(), findings.refusal));
    if (!findings.warning.empty()) logger.warn("{}", findings.warning);
    facts.folder_of_class = std::move(findings.folder_of_class);
  }
  for (int64_t i = 0; facts.info.has_labels() && i < train.size(); ++i) {
    const auto refusal = data::refusal_of_label(train.label(i), facts.info.num_classes);
    if (!refusal.empty()) throw DataError(fmt::format("{}: {}", train.describe(i), refusal));
  }
  facts.targets = data::summarize_targets(train);
  const auto indices = data::evenly_spaced(train.size(), kMostMeasured);
  recipe::ImageNotes notes;
  facts.sizes = survey("training", train, facts, notes, logger);
  if (facts.sizes.sizes.empty()) throw DataError(facts.sizes.first_unreadable);
  std::unique_ptr<data::Dataset> validation;
  if (found.factory.has_validation) {
    validation = found.factory.open(Split::kValidation, *warnings);
    facts.num_validation = validation->size();
    survey("validation", *validation, facts, notes, logger);
  }
  const auto sentences = notes.sentences();
  for (const auto& sentence : sentences) logger.warn("{}", sentence);
  has_warned = facts.num_unreadable > 0 || !sentences.empty();
  const auto preparation = survey::choose_preparation(facts);
  std::string list;
  for (const auto& line : preparation.validation) list += '\n' + line;
  const auto transforms = config::read_components(list.empty() ? "[]" : list, "the transforms", data::transform_registry());
  survey::PixelStatistics pixels;
  if (!survey::begins_with_weights(facts, preparation)) {
    pixels = with_progress("pixels: read", indices.size(), logger,
                           [&](const auto& report) { return survey::measure_pixels(train, indices, transforms, report); });
  }
  return survey::starting_file(facts, preparation, pixels);
}

void refuse_existing(const fs::path& file) {
  throw UsageError(fmt::format("{} exists already and is kept; name another file with --output", file.string()));
}

void write_new_file(const fs::path& path, std::string_view text) {
  const auto file = open_regular_file(path, O_WRONLY | O_CREAT | O_EXCL);
  if (file.number() < 0 && errno == EEXIST) refuse_existing(path);
  if (file.number() >= 0 && write_all(file.number(), text)) return;
  const int reason = errno;
  // Removes a partial file, because the next attempt would refuse to replace it.
  if (file.number() >= 0) fs::remove(path);
  throw Error(fmt::format("cannot write {}: {}", path.string(), std::strerror(reason)));
}

// Fails before a long computation if the file could not be written at its end.
void try_new_file(const fs::path& path) {
  write_new_file(path, "");
  fs::remove(path);
}

// The JSON Schema, in the folder of the experiment file. The experiment file's first line names it for the language servers of editors.
constexpr const char* kSchemaName = "trainer.schema.json";

void print_next_steps(const std::string& path, bool has_data, bool has_warned) {
  const auto file = quoted(path);
  std::vector<cli::Row> steps = {{"", "trainer validate --config " + file, "# check it without data"}};
  if (has_warned) steps.push_back({"", "trainer data check --config " + file, "# list all images that cannot be read or look unintended"});
  if (has_data) {
    steps.push_back({"", "trainer data audit --config " + file, "# list images that are the same or nearly the same"});
    steps.push_back({"", fmt::format("trainer data show --config {} --output images.png", file), "# see what the network receives"});
  }
  steps.push_back({"", "trainer --config " + file, "# train"});
  steps.push_back({"", "trainer launch --config " + file, "# train with one process per GPU"});
  if (is_standard_output_closed()) return;
  print("{} is written, and beside it {}, with which editors complete and check it. What you can do next:\n{}", path, kSchemaName,
        cli::to_table({{""}, {""}, {""}}, std::move(steps)));
}

}  // namespace

ExitCode init(const std::vector<std::string>& args) {
  CLI::App app(
      "Writes an experiment file to start from, with comments. With --data, the file suits these images: the program reads them to "
      "determine their classes, sizes and pixel statistics.",
      "trainer init");
  fs::path data;
  fs::path output = "experiment.yaml";
  bool without_weights = false;
  auto* data_option =
      app.add_option(
             "--data", data,
             "a folder with a folder of images for each class, or with train/ and val/ that hold such folders; a CSV file; or a folder "
             "with the files of a known data set; default: an experiment for CIFAR-10, which training downloads")
          ->type_name("DIR");
  app.add_flag("--no-weights", without_weights,
               "begin with random values, even for few images, instead of published weights, which training downloads")
      ->needs(data_option);
  app.add_option("--output", output, "the file, which must not exist yet; default: experiment.yaml")->type_name("FILE");
  cli::parse(app, args);
  if (fs::exists(output)) refuse_existing(output);
  try_new_file(output);

  const auto logger = make_console_logger();
  bool has_warned = false;
  const auto text = data.empty() ? std::string(survey::kStartingFileOfCifar10) : file_for(data, !without_weights, *logger, has_warned);
  const auto& registries = recipe::all_registries();
  config::load_text(text, output.string(), {}, registries);
  write_new_file(output, fmt::format("# yaml-language-server: $schema={}\n{}", kSchemaName, text));
  write_file_atomically(output.parent_path() / kSchemaName, config::schema(registries).dump(1) + '\n');
  print_next_steps(output.string(), /*has_data=*/!data.empty(), has_warned);
  return ExitCode::kDone;
}

}  // namespace trainer::commands
