#include "commands/init.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "commands/run_end.h"
#include "config/reader.h"
#include "config/schema.h"
#include "data/transforms/transform.h"
#include "datasets/csv.h"
#include "datasets/folder_listing.h"
#include "datasets/registry.h"
#include "device/cuda_module.h"
#include "launch/world/host_resources.h"
#include "run/session/advice.h"
#include "run/session/registries.h"

namespace trainer::commands {
namespace {

namespace fs = std::filesystem;
using data::Split;

// More images would hardly change the statistics of sizes and pixels.
constexpr int64_t kMostMeasured = 2000;

Node section_of(const std::string& dataset, const std::string& key, const fs::path& path) {
  auto section = Node::map();
  section.set("name", Node::scalar(dataset));
  section.set(key, Node::scalar(path.string()));
  return section;
}

// Adds the possible sections `dataset` for a CSV file, one for each kind of targets.
void add_csv_sections(const Node& section, std::vector<Node>& sections) {
  for (const char* targets : {"class", "classes", "numbers"}) {
    sections.push_back(section);
    if (std::string_view(targets) != "class") sections.back().set("targets", Node::scalar(targets));
  }
}

// The possible sections `dataset` for `data`.
std::vector<Node> candidates(const fs::path& data) {
  std::vector<Node> sections;
  if (data.extension() == ".csv") {
    add_csv_sections(section_of("csv", "train", data), sections);
    return sections;
  }
  for (const char* name : {"lmdb", "cifar10", "cifar100", "mnist", "fashion_mnist", "tiny_imagenet"}) {
    sections.push_back(section_of(name, "root", data));
  }
  if (fs::exists(data / "train.csv")) {
    auto section = section_of("csv", "train", data / "train.csv");
    for (const char* name : {"val.csv", "validation.csv"}) {
      if (fs::exists(data / name)) section.set("validation", Node::scalar((data / name).string()));
    }
    add_csv_sections(section, sections);
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

// Whether the labels of a CSV file are lists of several classes, or numbers of a regression (at least one with a fraction).
bool are_other_targets(const data::DatasetInfo& info) {
  const auto& names = info.class_names;
  const auto is_number = [](const std::string& name) {
    double value = 0;
    const auto result = std::from_chars(name.data(), name.data() + name.size(), value);
    return result.ec == std::errc() && result.ptr == name.data() + name.size();
  };
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
  std::string problem;  // of the first candidate
  std::string reason;   // why the folder, the last candidate, is no image_folder
  for (auto& section : sections) {
    auto factory = make_factory(section);
    if (problem.empty()) problem = factory.missing;
    reason = factory.missing;
    const bool is_of_csv = section.find("name")->value.text == "csv";
    if (is_of_csv && !may_have_targets(section, factory.info)) continue;
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
ImageSizes survey(const char* part, const data::Dataset& dataset, DatasetFacts& facts, session::ImageNotes& notes, Logger& logger) {
  notes.begin_part(part, dataset);
  const auto indices = data::evenly_spaced(dataset.size(), kMostMeasured);
  auto sizes = find_sizes(dataset, indices, notes, logger);
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
    for (int64_t i = 0; i < train.size(); ++i) images.push_back(train.key(i));
    auto findings = judge_folders(images);
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
  if (indices.size() >= kWorthShowing && !world::can_redraw_lines()) {
    logger.info("reading {} training images to determine their sizes and the statistics of their pixels", indices.size());
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
  const auto sentences = notes.sentences();
  for (const auto& sentence : sentences) logger.warn("{}", sentence);
  has_warned = facts.num_unreadable > 0 || !sentences.empty();
  const auto preparation = choose_preparation(facts);
  std::string list;
  for (const auto& line : preparation.validation) list += '\n' + line;
  const auto transforms = config::read_components(list.empty() ? "[]" : list, "the transforms", data::transform_registry());
  const bool is_measured = !begins_with_weights(facts, preparation);
  return starting_file(facts, preparation, is_measured ? measure_pixels(train, indices, transforms, logger) : PixelStatistics());
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
  struct Step {
    std::string command;
    const char* purpose;
  };
  const auto file = quoted(path);
  std::vector<Step> steps;
  const auto is_validate = [](const Command& command) { return std::string_view(command.name) == "validate"; };
  if (std::ranges::any_of(all_commands(), is_validate)) steps.push_back({"trainer validate --config " + file, "check it without data"});
  if (has_warned) steps.push_back({"trainer data check --config " + file, "list all images that cannot be read or look unintended"});
  if (has_data) steps.push_back({"trainer data audit --config " + file, "list images that are the same or nearly the same"});
  if (has_data) steps.push_back({fmt::format("trainer data show --config {} --output images.png", file), "see what the network receives"});
  steps.push_back({"trainer --config " + file, "train"});
  steps.push_back({"trainer launch --config " + file, "train with one process per GPU"});
  size_t width = 0;
  for (const auto& step : steps) width = std::max(width, step.command.size());
  if (is_standard_output_closed()) return;
  print("{} is written, and beside it {}, with which editors complete and check it. What you can do next:\n", path, kSchemaName);
  for (const auto& step : steps) print("  {:<{}}  # {}\n", step.command, width, step.purpose);
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
  const auto text = data.empty() ? starting_file_without_data() : file_for(data, !without_weights, *logger, has_warned);
  const auto& registries = session::all_registries();
  config::load_text(text, output.string(), {}, registries);
  write_new_file(output, fmt::format("# yaml-language-server: $schema={}\n{}", kSchemaName, text));
  write_file_atomically(output.parent_path() / kSchemaName, config::schema(registries).dump(1) + '\n');
  print_next_steps(output.string(), /*has_data=*/!data.empty(), has_warned);
  return ExitCode::kDone;
}

namespace {

constexpr const char* kBeginning =
    "# An experiment file to start from, written by `trainer init`. `trainer config reference` describes all keys, and each can be\n"
    "# set on the command line too: training.epochs=5\n";

// With more classes, their numbers of images are not listed. Of the numbers of a regression, only this many are listed.
constexpr size_t kMostListed = 20;
// With fewer images, no image is dropped at the end of an epoch, and a fifth instead of a tenth is held out for validation.
constexpr int64_t kFewImages = 2000;

int64_t num_train_images(const DatasetFacts& facts) { return facts.targets.num_samples; }

bool has_few_images(const DatasetFacts& facts) { return num_train_images(facts) < kFewImages; }

// Whether a class has more than twice as many images as another one.
bool is_uneven(const DatasetFacts& facts) {
  const auto& counts = facts.targets.class_counts;
  return !counts.empty() && std::ranges::max(counts) > 2 * std::ranges::min(counts);
}

std::string class_name(const DatasetFacts& facts, size_t label) {
  const auto& names = facts.info.class_names;
  return label < names.size() ? config::to_inline_yaml(Node::scalar(names[label])) : std::to_string(label);
}

// The parts, separated by commas, in comment lines of the experiment file.
std::string wrapped(const std::vector<std::string>& parts) {
  constexpr size_t kWidth = 100;
  std::string text = "#  ";
  size_t line = 0;  // where the last line begins
  for (size_t i = 0; i < parts.size(); ++i) {
    if (text.size() - line > 3 && text.size() - line + parts[i].size() > kWidth) {
      text += "\n#  ";
      line = text.size() - 3;
    }
    text += ' ' + parts[i] + (i + 1 < parts.size() ? "," : "\n");
  }
  return text;
}

std::string describe_numbers(const DatasetFacts& facts) {
  const auto& [num_samples, counts, mean, deviation] = facts.targets;
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(mean.size(), kMostListed); ++i) {
    const auto& names = facts.info.target_names;
    const auto name = names.empty() ? std::to_string(i + 1) : config::to_inline_yaml(Node::scalar(names[i]));
    parts.push_back(fmt::format("{} {:.4g} ± {:.4g}", name, mean[i], deviation[i]));
  }
  return fmt::format("# {} with {} each; mean and standard deviation:\n", counted(num_samples, "training image"),
                     counted(mean.size(), "number")) +
         wrapped(parts);
}

std::string describe_counts(const DatasetFacts& facts) {
  const auto& counts = facts.targets.class_counts;
  const auto [least, most] = std::ranges::minmax(counts);
  auto text = fmt::format("# {} of {}{}", counted(num_train_images(facts), "training image"),
                          facts.info.is_multi_label ? "any number of " : "", counted(counts.size(), "class", "classes"));
  if (counts.size() > kMostListed) return text + fmt::format(", {} to {} of each\n", least, most);
  std::vector<std::string> parts;
  for (size_t label = 0; label < counts.size(); ++label) parts.push_back(fmt::format("{} {}", class_name(facts, label), counts[label]));
  return text + ":\n" + wrapped(parts);
}

std::string describe_targets(const DatasetFacts& facts) {
  auto text = facts.info.num_classes > 0 ? describe_counts(facts) : describe_numbers(facts);
  if (facts.num_validation) {
    text += fmt::format("# {} for validation\n", counted(*facts.num_validation, "image"));
  } else {
    text += fmt::format("# No images for validation: a {} of the training images is held out (dataset.validation_split).\n",
                        has_few_images(facts) ? "fifth" : "tenth");
  }
  return text;
}

// The section `loss`, if its default is unsuitable.
std::string describe_loss(const DatasetFacts& facts) {
  if (facts.info.num_classes == 0) {
    return "# Mean squared error of the numbers, each divided by its standard deviation; huber and l1 give outliers less weight.\n"
           "loss: {name: mse}\n\n";
  }
  if (!facts.info.is_multi_label) return "";
  if (!is_uneven(facts)) return "# Each class is predicted independently of the others.\nloss: {name: bce}\n\n";
  return "# Each class is predicted independently of the others. Images of rare classes have more weight in the loss.\n"
         "loss: {name: bce, pos_weight: auto}\n\n";
}

std::string describe_sizes(const DatasetFacts& facts) {
  const auto& sizes = facts.sizes.sizes;
  const auto area = [](const ImageSize& size) { return int64_t{size.height} * size.width; };
  const auto [smallest, largest] = std::ranges::minmax(sizes, {}, area);
  const auto text_of = [](const ImageSize& size) { return fmt::format("{} x {}", size.height, size.width); };
  const bool are_all = static_cast<int64_t>(sizes.size()) == num_train_images(facts);
  const auto of = "height x width, of " + (are_all ? "all" : fmt::format("{} of the", sizes.size())) + " training images";
  if (std::ranges::all_of(sizes, [&](const ImageSize& size) { return size == sizes.front(); })) {
    return fmt::format("# Size: {} ({})\n", text_of(smallest), of);
  }
  return fmt::format("# Sizes: {} to {} ({})\n", text_of(smallest), text_of(largest), of);
}

// The median of the shorter edges.
int64_t median_edge(std::vector<ImageSize> sizes) {
  const auto edge = [](const ImageSize& size) { return std::min(size.height, size.width); };
  const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
  std::ranges::nth_element(sizes, middle, {}, edge);
  return edge(*middle);
}

// Whether most images are more than 1.6 times as long in one direction as in the other.
bool is_elongated(const std::vector<ImageSize>& sizes) {
  const auto num_elongated = std::ranges::count_if(sizes, [](const ImageSize& size) {
    constexpr double kRatio = 1.6;
    return std::max(size.height, size.width) > kRatio * std::min(size.height, size.width);
  });
  return 2 * static_cast<size_t>(num_elongated) > sizes.size();
}

bool is_digits(const DatasetFacts& facts) { return facts.section.find("name")->value.text == "mnist"; }

// The statistics of the images on which the published weights were trained.
const PixelStatistics kImagenet = {.mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}, .num_images = 0};

// `digits`: the number of decimals of each value.
std::string numbers(const std::vector<double>& values, const std::vector<int>& digits) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < values.size(); ++i) texts.push_back(fmt::format("{:.{}f}", values[i], digits[i]));
  return "[" + join(texts, ", ") + "]";
}

struct Schedule {
  int64_t batch_size = 0;
  double lr = 0;
  int64_t epochs = 0;
  int64_t warmup_epochs = 0;
};

// `has_weights`: whether the network begins with published weights.
Schedule choose_schedule(int64_t num_train, int64_t size, bool has_weights) {
  // Enough for a first result without a long wait.
  constexpr int64_t kImagesOfTraining = 600'000;
  const int64_t usual_batch = has_weights ? 32 : size <= 64 ? 128 : 64;
  Schedule schedule;
  // At least eight steps in an epoch, if there are 16 images or more.
  schedule.batch_size = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(num_train / 8, 2, usual_batch))));
  if (has_weights) {
    schedule.epochs = std::clamp<int64_t>((kImagesOfTraining / 10 / num_train + 4) / 5 * 5, 10, 30);
    schedule.warmup_epochs = 1;
    return schedule;
  }
  schedule.lr = 0.1 * static_cast<double>(schedule.batch_size) / 128;
  schedule.epochs = std::clamp<int64_t>((kImagesOfTraining / num_train + 4) / 5 * 5, 10, 100);
  // Short, so that a first try of three epochs, as in docs/get_started.md, is accepted.
  schedule.warmup_epochs = std::min<int64_t>(schedule.epochs / 10, 2);
  return schedule;
}

std::string describe_dataloader(const DatasetFacts& facts, const Schedule& schedule, bool decodes) {
  auto keys = fmt::format("global_batch_size: {}", schedule.batch_size);
  if (decodes) keys += ", num_workers: 4";
  if (has_few_images(facts)) keys += ", drop_last: false";
  auto text = fmt::format("dataloader: {{{}}}\n", keys);
  if (facts.info.has_labels() && is_uneven(facts)) {
    const auto [least, most] = std::ranges::minmax(facts.targets.class_counts);
    text += fmt::format(
        "# The classes have from {} to {} images. To give rare classes the same weight as the others, draw images of each class\n"
        "# equally often:\n"
        "# dataloader: {{{}, sampler: {{name: class_balanced}}}}\n",
        least, most, keys);
    text +=
        "# or weight the loss of each image by its class:\n# loss: {class_weights: auto}\n"
        "# top1, by which the best checkpoint is chosen, hardly reflects rare classes. To choose it by the mean recall of all classes:\n"
        "# checkpoint: {monitor: validation/balanced_accuracy}\n";
  }
  return text;
}

std::string origin_of(const PixelStatistics& pixels, const DatasetFacts& facts) {
  if (pixels.num_images == 0) return "those of the images on which the weights were trained";
  const bool is_exact = pixels.num_images == num_train_images(facts);
  return fmt::format("those of {}, prepared as for validation",
                     is_exact ? "all training images" : fmt::format("{} of the training images", pixels.num_images));
}

std::string describe_dataset(const DatasetFacts& facts, const ImagePreparation& preparation, const PixelStatistics& pixels) {
  auto text = std::string("dataset:\n");
  for (const auto& member : facts.section.members) text += fmt::format("  {}: {}\n", member.name, config::to_inline_yaml(member.value));
  const auto& name = facts.section.find("name")->value.text;
  if (const auto& decoding = facts.info.decoding; decoding.has_float_pixels() && (name == "csv" || name == "image_folder")) {
    const auto what = decoding.mode == data::ImageMode::kGrey16
                          ? "like the first readable image: 16 bits of grey"
                          : fmt::format("like the first readable image: {}", counted(facts.info.shape.front(), "channel"));
    text += fmt::format("{:<54} # {}\n", fmt::format("  mode: {}", data::name_of(decoding.mode)), what);
  }
  if (facts.num_unreadable > 0) {
    text += fmt::format(
        "  on_error: skip                                       # {} of {} examined images cannot be read; `trainer data check` lists "
        "all\n",
        facts.num_unreadable, facts.num_read);
  }
  auto std = pixels.std;
  // Float pixels may all be small, because a camera may use only a few of its 16 bits, and other images may have values of any range.
  const bool is_exact = facts.info.decoding.has_float_pixels();
  // If all images have the same single colour, the standard deviation is 0, and normalize could not divide by it.
  for (double& value : std) value = value < (is_exact ? 1e-12 : 0.00005) ? 1 : value;
  // Four decimals; for float pixels, four significant digits of the standard deviation.
  std::vector<int> digits(std.size(), 4);
  for (size_t i = 0; is_exact && i < std.size(); ++i) digits[i] = std::max(3 - static_cast<int>(std::floor(std::log10(std[i]))), 0);
  const auto normalize = fmt::format("    - normalize: {{mean: {}, std: {}}}", numbers(pixels.mean, digits), numbers(std, digits));
  if (!facts.num_validation && has_few_images(facts)) {
    text += fmt::format("  validation_split: 0.2                                # {}a tenth of so few images would not be enough\n",
                        facts.info.has_labels() ? "of each class; " : "");
  }
  if (!facts.folder_of_class.empty() && !facts.num_validation) {
    text += fmt::format(
        "  # All images lie in folders below the classes, such as {}. If each is of one patient or scene, hold out whole folders, with\n"
        "  # this line instead of validation_split:\n"
        "  # split: {{group: '^[^/]+/([^/]+)/'}}\n",
        config::to_inline_yaml(Node::scalar(facts.folder_of_class)));
  }
  text += fmt::format("  # Mean and standard deviation are {}.\n", origin_of(pixels, facts));
  const bool caches = caches_features(facts, preparation);
  if (caches) text += "  # To train all layers, see training below, also remove the # of these lines:\n";
  const auto add_train = [&](const std::string& line) { text += (caches ? "  #" + line.substr(2) : line) + '\n'; };
  add_train("  train_transforms:");
  for (const auto& line : preparation.train) add_train(line);
  add_train(normalize);
  text += "  validation_transforms:\n";
  for (const auto& line : preparation.validation) text += line + '\n';
  return text + normalize + '\n';
}

}  // namespace

FolderFindings judge_folders(const std::vector<std::string>& images) {
  std::map<std::string, std::set<std::string>> folders;  // below each class folder
  bool are_all_in_folders = true;
  for (const auto& image : images) {
    const auto first = image.find('/');
    const auto second = image.find('/', first + 1);
    auto& of_class = folders[image.substr(0, first)];
    if (second != std::string::npos) of_class.insert(image.substr(first + 1, second - first - 1));
    are_all_in_folders &= second != std::string::npos;
  }
  FolderFindings findings;
  bool are_same = folders.size() > 1;
  for (const auto& [name, below] : folders) {
    const auto part = std::ranges::find_if(below, datasets::is_split_name);
    if (part != below.end()) {
      findings.refusal = fmt::format("the folder \"{}/{}\" is probably not a class; {}", name, *part,
                                     folders.size() == 1 ? fmt::format("give its folder, \"{}\", to --data", name)
                                                         : "arrange the images as train/CLASS/... and val/CLASS/...");
      return findings;
    }
    are_same = are_same && below.size() > 1 && below == folders.begin()->second;
    if (are_all_in_folders && below.size() > 1) findings.folder_of_class = name + '/' + *below.begin();
  }
  if (!are_same) return findings;
  const auto& below = folders.begin()->second;
  findings.warning = fmt::format(
      "the folders \"{}\" to \"{}\" become the classes, but all of them contain the folders \"{}\" to \"{}\"; if these are the classes, "
      "and the "
      "others are patients or scenes, arrange the images as CLASS/PATIENT/..., and set dataset.split.group to '^[^/]+/([^/]+)/'",
      folders.begin()->first, folders.rbegin()->first, *below.begin(), *below.rbegin());
  return findings;
}

ImagePreparation choose_preparation(const DatasetFacts& facts) {
  const auto& shape = facts.info.shape;
  const auto edge = median_edge(facts.sizes.sizes);
  const auto is_square = [&](const ImageSize& size) { return size.height == edge && size.width == edge; };
  ImagePreparation chosen;
  // For a regression, moving, scaling or mirroring an image may change its targets, such as a position or a length.
  const bool are_numbers = facts.info.num_classes == 0;
  const auto add_flip = [&] {
    if (!is_digits(facts) && !are_numbers)
      chosen.train.emplace_back("    - random_horizontal_flip: {p: 0.5}                 # remove it if left and right differ, as in text");
  };
  if (edge <= 64 && std::ranges::all_of(facts.sizes.sizes, is_square)) {
    chosen.size = edge;
    if (shape[1] == data::kAnySize) {
      const auto same = fmt::format("    - resize: {{size: [{}, {}]}}", edge, edge);
      chosen.train.push_back(fmt::format("{:<54} # does not change images of this size", same));
      chosen.validation.push_back(same);
    }
    const auto crop = fmt::format("    - random_crop: {{size: {}, padding: {}}}", edge, std::max<int64_t>(edge / 8, 1));
    if (!are_numbers) chosen.train.push_back(fmt::format("{:<54} # shifted at random by up to an eighth of the edge", crop));
    add_flip();
    return chosen;
  }
  // Published weights were trained on 224 pixels. Without them, enlarged images only cost time.
  chosen.size = edge < 48 ? 32 : edge < 96 ? 64 : edge < 160 ? 128 : edge < 224 && !facts.may_use_weights ? 160 : 224;
  const auto crop = fmt::format("    - random_resized_crop: {{size: {}, scale: [0.35, 1]}}", chosen.size);
  if (!are_numbers) chosen.train.push_back(fmt::format("{:<54} # a random part of at least 35 % of the image", crop));
  add_flip();
  // The usual ratio for ImageNet: 256 for 224.
  chosen.validation.push_back(fmt::format("{:<54} # the shorter edge", fmt::format("    - resize: {{size: {}}}", chosen.size * 8 / 7)));
  const auto crop_middle = fmt::format("    - center_crop: {{size: {}}}", chosen.size);
  chosen.validation.push_back(
      is_elongated(facts.sizes.sizes)
          ? fmt::format("{:<54} # cuts off the ends; `letterbox: {{size: {}}}` instead of resize and center_crop keeps the whole image",
                        crop_middle, chosen.size)
          : crop_middle);
  if (are_numbers) chosen.train = chosen.validation;
  return chosen;
}

bool begins_with_weights(const DatasetFacts& facts, const ImagePreparation& preparation) {
  // Enough images to train without published weights.
  constexpr int64_t kManyImages = 100'000;
  return facts.may_use_weights && preparation.size >= 128 && facts.info.shape.front() == 3 && num_train_images(facts) < kManyImages;
}

bool caches_features(const DatasetFacts& facts, const ImagePreparation& preparation) {
  // An image that cannot be read has no features.
  return !facts.has_gpu && facts.num_unreadable == 0 && begins_with_weights(facts, preparation);
}

std::string starting_file(const DatasetFacts& facts, const ImagePreparation& preparation, const PixelStatistics& pixels) {
  const int64_t num_images = num_train_images(facts);
  const int64_t num_train =
      facts.num_validation ? num_images : std::max<int64_t>(num_images - num_images / (has_few_images(facts) ? 5 : 10), 1);
  const bool has_weights = begins_with_weights(facts, preparation);
  const bool caches = caches_features(facts, preparation);
  const auto schedule = choose_schedule(num_train, preparation.size, has_weights);
  const bool is_small = preparation.size <= 32;
  const bool is_medium = !is_small && preparation.size <= 64;
  const auto model = is_small      ? "model: {name: resnet20}"
                     : is_medium   ? "model: {name: resnet18, stem: cifar}"
                     : has_weights ? "model: {name: resnet18, weights: default, freeze: [backbone]}"
                                   : "model: {name: resnet18}";
  const auto why =
      is_small    ? "# A small network for images of up to 32 x 32 pixels, which trains in minutes on a CPU."
      : is_medium ? "# The stem is for small images: the usual stem, for 224 x 224 pixels, would reduce height and width by a "
                    "factor of four."
      : has_weights
          ? "# The network begins with weights that were trained on ImageNet (45 MB, downloaded once), so that few images and epochs are "
            "enough.\n"
            "# The last layer, which is new for these classes, is trained alone or first: see training below. `trainer weights list`\n"
            "# shows other networks. `trainer init --no-weights` writes a file without weights."
      : facts.info.shape.front() != 3
          ? "# The network begins with random weights, because published weights are for images with 3 channels."
      : facts.may_use_weights
          ? "# There are enough images to train the network from random weights. `weights: default` begins with weights trained on "
            "ImageNet."
          : "# The network begins with random weights. `weights: default` begins with weights trained on ImageNet, and needs fewer images.";
  const bool decodes = facts.info.shape[1] == data::kAnySize;
  auto text = std::string(kBeginning);
  text += fmt::format("experiment: {:<36} # the run directory is runs/{}\n\n", facts.name, facts.name);
  text += describe_targets(facts) + describe_sizes(facts) + '\n';
  text += fmt::format("{}\n{}\n\n", why, model);
  text += describe_dataset(facts, preparation, has_weights ? kImagenet : pixels) + '\n';
  text += fmt::format(
      "# The batch size of all processes together, so that the result does not depend on their number. If memory runs out, lower this\n"
      "# value{}.\n",
      has_weights ? "" : " and lr by the same factor");
  text += describe_dataloader(facts, schedule, decodes) + '\n' + describe_loss(facts);
  if (has_weights) {
    text +=
        "# The first layers learn at a fraction of the last one's rate (layer_decay), because their features are similar for all "
        "images.\n"
        "optimizer: {name: adamw, lr: 1.0e-3, weight_decay: 0.05, decay_norm_and_bias: false, layer_decay: 0.8}\n" +
        fmt::format("lr_scheduler: {{name: cosine, warmup_epochs: {}}}\n\n", schedule.warmup_epochs);
    const auto training = fmt::format("training: {{epochs: {}, max_grad_norm: 1.0, ", schedule.epochs);
    if (caches) {
      text +=
          "# The other layers are computed once for each image (cache_features): without a GPU, this takes minutes instead of hours. "
          "Training\n"
          "# all layers is more accurate. To do so, use the second line instead of the first.\n" +
          training + "cache_features: true}\n# " + training + "unfreeze_after: 2}\n";
      return text;
    }
    return text +
           fmt::format("# With more than these {} images, fewer epochs are enough: about 60,000 images in all, from 10 to 30 epochs.\n",
                       num_train) +
           training + "unfreeze_after: 2}\n";
  }
  text += fmt::format(
      "# The learning rate is 0.1 for a batch of 128, and proportional for other sizes. After {} of warm-up, it falls to 0 by\n"
      "# the end of the training.\n",
      counted(schedule.warmup_epochs, "epoch"));
  text += fmt::format("optimizer: {{name: sgd, lr: {:.2g}, momentum: 0.9, weight_decay: 5.0e-4, nesterov: true}}\n", schedule.lr);
  text += fmt::format("lr_scheduler: {{name: cosine, warmup_epochs: {}}}\n\n", schedule.warmup_epochs);
  text += fmt::format(
      "# With more than these {} images, fewer epochs are enough: about 600,000 images in all, from 10 to 100 epochs.\n"
      "training: {{epochs: {}}}\n",
      num_train, schedule.epochs);
  return text;
}

std::string starting_file_without_data() {
  return std::string(kBeginning) +
         R"(experiment: cifar10                              # the run directory is runs/cifar10

# A small network for images of 32 x 32 pixels; `trainer list models` shows the others.
model: {name: resnet20}

# For your own images in one folder for each class: `trainer init --data FOLDER`.
dataset:
  name: cifar10
  root: data                                     # the folder that holds cifar-10-batches-bin/
  download: true                                 # downloaded to root when missing
  train_transforms:
    - random_crop: {size: 32, padding: 4}          # shifted at random by up to an eighth of the edge
    - random_horizontal_flip: {p: 0.5}
    - normalize: {mean: [0.4914, 0.4822, 0.4465], std: [0.2470, 0.2435, 0.2616]}
  validation_transforms:
    - normalize: {mean: [0.4914, 0.4822, 0.4465], std: [0.2470, 0.2435, 0.2616]}

# The batch of all processes together, so that the result does not depend on their number.
dataloader: {global_batch_size: 128}

optimizer: {name: sgd, lr: 0.1, momentum: 0.9, weight_decay: 5.0e-4, nesterov: true}
lr_scheduler: {name: cosine, warmup_epochs: 1}

training: {epochs: 15}
)";
}

}  // namespace trainer::commands
