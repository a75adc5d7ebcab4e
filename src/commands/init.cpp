#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "commands/run_end.h"
#include "commands/starting_file.h"
#include "config/reader.h"
#include "data/transforms/transform.h"
#include "datasets/registry.h"
#include "launch/world/host_resources.h"
#include "run/session/image_notes.h"
#include "run/session/registries.h"

namespace trainer::commands {
namespace {

namespace fs = std::filesystem;
using data::Split;

// More images say hardly more about the mean of their pixels.
constexpr int64_t kMostMeasured = 2000;

Node section_of(const std::string& dataset, const std::string& key, const fs::path& path) {
  auto section = Node::map();
  section.set("name", Node::scalar(dataset));
  section.set(key, Node::scalar(path.string()));
  return section;
}

// The sections `dataset` that `data` may belong to.
std::vector<Node> candidates(const fs::path& data) {
  if (data.extension() == ".csv") return {section_of("csv", "train", data)};
  std::vector<Node> sections;
  for (const char* name : {"lmdb", "cifar10", "cifar100", "mnist", "fashion_mnist", "tiny_imagenet"}) {
    sections.push_back(section_of(name, "root", data));
  }
  if (fs::exists(data / "train.csv")) {
    sections.push_back(section_of("csv", "train", data / "train.csv"));
    for (const char* name : {"val.csv", "validation.csv"}) {
      if (fs::exists(data / name)) sections.back().set("validation", Node::scalar((data / name).string()));
    }
  }
  sections.push_back(section_of("image_folder", "root", data));
  return sections;
}

data::DatasetFactory make_factory(const Node& section) {
  auto registries = session::all_registries();
  registries.check = {};
  auto root = Node::map();
  root.set("experiment", Node::scalar("init"));
  root.set("model", Node::map()).set("name", Node::scalar("resnet18"));
  root.set("training", Node::map()).set("epochs", Node::scalar("1"));
  root.set("dataset", section);
  const auto experiment = config::load_text(config::to_yaml(root), "--data", {}, registries);
  return datasets::dataset_registry().make(experiment.dataset.component);
}

struct FoundData {
  Node section;
  data::DatasetFactory factory;
  std::unique_ptr<data::Dataset> train;
};

FoundData find_data(const fs::path& data, Logger& logger) {
  if (!fs::exists(data)) throw UsageError(fmt::format("--data {}: there is no such folder", data.string()));
  auto sections = candidates(data);
  for (auto& section : sections) {
    auto factory = make_factory(section);
    const bool is_last = &section == &sections.back();
    if (!factory.missing.empty() || !factory.info.is_image) {
      if (!is_last || sections.size() > 1) continue;
      throw DataError(fmt::format("--data {}: {}", data.string(), factory.missing));
    }
    try {
      auto train = factory.open(Split::kTrain, logger);
      return {std::move(section), std::move(factory), std::move(train)};
    } catch (const DataError&) {
      if (is_last) throw;
    }
  }
  throw DataError(
      fmt::format("--data {}: no data set is recognised there: it has neither folders of images (CLASS/..., or train/CLASS/... and "
                  "val/CLASS/...) nor train.csv nor the files of lmdb, cifar10, cifar100, mnist, fashion_mnist or tiny_imagenet",
                  data.string()));
}

// The name of the folder or CSV file, as far as it can name a run.
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
ImageSizes survey(const char* part, const data::Dataset& dataset, DatasetFacts& facts, session::ImageNotes& notes, Logger& logger) {
  notes.begin_part(part, dataset);
  const auto indices = data::evenly_spaced(dataset.size(), kMostMeasured);
  auto sizes = find_sizes(dataset, indices, notes, logger);
  facts.num_read += static_cast<int64_t>(indices.size());
  facts.num_unreadable += sizes.num_unreadable;
  if (sizes.num_unreadable > 0) {
    logger.warn("{} of {} {} images cannot be read, the first is {}", sizes.num_unreadable, indices.size(), part, sizes.first_unreadable);
  }
  return sizes;
}

std::string file_for(const fs::path& data, Logger& logger) {
  const auto warnings = make_console_logger();
  warnings->set_level(spdlog::level::warn);
  auto found = find_data(data, *warnings);
  const auto& train = *found.train;
  DatasetFacts facts{.name = experiment_name(data), .section = found.section, .info = train.info()};
  facts.images_per_class.resize(static_cast<size_t>(facts.info.num_classes));
  for (int64_t i = 0; i < train.size(); ++i) {
    const auto label = train.label(i);
    const auto refusal = data::refusal_of_label(label, facts.info.num_classes);
    if (!refusal.empty()) throw DataError(fmt::format("{}: {}", train.describe(i), refusal));
    ++facts.images_per_class[static_cast<size_t>(label)];
  }
  const auto indices = data::evenly_spaced(train.size(), kMostMeasured);
  if (indices.size() >= kWorthShowing && !world::can_redraw_lines()) {
    logger.info("measures the sizes and the pixels of {} training images", indices.size());
  }
  session::ImageNotes notes;
  facts.sizes = survey("training", train, facts, notes, logger);
  if (facts.sizes.sizes.empty()) throw DataError(facts.sizes.first_unreadable);
  std::unique_ptr<data::Dataset> validation;
  if (found.factory.has_validation) {
    validation = found.factory.open(Split::kValidation, *warnings);
    facts.num_validation = validation->size();
    survey("validation", *validation, facts, notes, logger);
  }
  for (const auto& sentence : notes.sentences()) logger.warn("{}", sentence);
  const auto preparation = choose_preparation(facts);
  std::string list;
  for (const auto& line : preparation.validation) list += '\n' + line;
  const auto transforms = config::read_components(list.empty() ? "[]" : list, "the transforms", data::transform_registry());
  return starting_file(facts, preparation, measure_pixels(train, indices, transforms, logger));
}

void refuse_existing(const fs::path& file) {
  throw UsageError(fmt::format("{} exists already and is kept; name another file with --output", file.string()));
}

void write_new_file(const fs::path& path, std::string_view text) {
  const auto file = open_regular_file(path, O_WRONLY | O_CREAT | O_EXCL);
  if (file.number() < 0 && errno == EEXIST) refuse_existing(path);
  if (file.number() >= 0 && write_all(file.number(), text)) return;
  const int reason = errno;
  // Not half a file, which the next try would keep.
  if (file.number() >= 0) fs::remove(path);
  throw Error(fmt::format("cannot write {}: {}", path.string(), std::strerror(reason)));
}

// Fails before a long work, if writing the file at its end would.
void try_new_file(const fs::path& path) {
  write_new_file(path, "");
  fs::remove(path);
}

void print_next_steps(const std::string& path, bool has_data) {
  struct Step {
    std::string command;
    const char* purpose;
  };
  const auto file = quoted(path);
  std::vector<Step> steps;
  const auto is_validate = [](const Command& command) { return std::string_view(command.name) == "validate"; };
  if (std::ranges::any_of(all_commands(), is_validate)) steps.push_back({"trainer validate --config " + file, "check it without data"});
  if (has_data) steps.push_back({fmt::format("trainer data show --config {} --output images.png", file), "see what the network receives"});
  steps.push_back({"trainer --config " + file, "train"});
  steps.push_back({"trainer launch --config " + file, "train with one process per GPU"});
  size_t width = 0;
  for (const auto& step : steps) width = std::max(width, step.command.size());
  if (is_standard_output_closed()) return;
  print("{} is written. What you can do next:\n", path);
  for (const auto& step : steps) print("  {:<{}}  # {}\n", step.command, width, step.purpose);
}

}  // namespace

ExitCode init(const std::vector<std::string>& args) {
  CLI::App app(
      "Writes an experiment file to start from, with comments. With --data it is made for these images, whose classes, sizes and pixels "
      "are measured.",
      "trainer init");
  fs::path data;
  fs::path output = "experiment.yaml";
  app.add_option(
         "--data", data,
         "a folder with a folder of images for each class, or with train/ and val/ that hold such folders; or what holds the files of a "
         "known data set; default: CIFAR-10, which is downloaded")
      ->type_name("DIR");
  app.add_option("--output", output, "the file, which must not exist yet; default: experiment.yaml")->type_name("FILE");
  cli::parse(app, args);
  if (fs::exists(output)) refuse_existing(output);
  try_new_file(output);

  const auto logger = make_console_logger();
  const auto text = data.empty() ? starting_file_without_data() : file_for(data, *logger);
  config::load_text(text, output.string(), {}, session::all_registries());
  write_new_file(output, text);
  print_next_steps(output.string(), /*has_data=*/!data.empty());
  return ExitCode::kDone;
}

}  // namespace trainer::commands
