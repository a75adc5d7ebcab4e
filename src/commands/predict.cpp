#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <sstream>

#include "base/bytes.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signal.h"
#include "base/standard_streams.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "commands/command.h"
#include "commands/pictures.h"
#include "commands/run_end.h"
#include "config/overrides.h"
#include "data/image_file.h"
#include "datasets/folder_listing.h"
#include "inference/predictor.h"
#include "launch/world/host_resources.h"
#include "reporting/evaluation.h"
#include "reporting/values.h"
#include "run/network/network_file.h"
#include "run/rank/rank_context.h"
#include "run/recipe/registries.h"

namespace trainer::commands {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFilesAtOnce = 64;
constexpr size_t kMostInGrid = 100;
// The limit for a list of paths on stdin.
constexpr size_t kMostListBytes = size_t{1} << 30;

struct PredictArguments {
  std::string checkpoint;
  fs::path config;
  std::vector<std::string> paths;
  std::vector<std::string> overrides;
  std::optional<task::TestTimeAugmentation> tta;
  std::optional<int64_t> top_k;
  fs::path grid;
  fs::path embeddings;
  fs::path heatmaps;
  std::optional<double> reject_below;
  char list_separator = '\n';
  bool ema = false;
  bool json = false;
  bool csv = false;
};

// Whether the argument is an override such as runtime.device=cpu; not if a file has that name.
bool is_override(const std::string& argument) {
  const auto equals = argument.find('=');
  if (equals == std::string::npos) return false;
  const auto key = argument.substr(0, equals);
  const auto steps = config::parse_key_path(key);
  const bool is_key = steps && steps->size() > 1 && key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.[]") == std::string::npos;
  std::error_code none;
  return is_key && !fs::exists(argument, none);
}

PredictArguments parse_predict_arguments(const std::vector<std::string>& args) {
  PredictArguments arguments;
  CLI::App app(
      "Prints the most probable classes, or the numbers of a regression, that the network of a checkpoint predicts for image files.",
      "trainer predict");
  cli::add_network_file(app, arguments.checkpoint, arguments.config);
  std::vector<std::string> given;
  app.add_option("paths", given,
                 "image files, folders (searched for images at any depth), or - for a list on stdin, one path per line; also overrides "
                 "of keys of the experiment, such as runtime.device=cpu")
      ->required()
      ->type_name("PATH");
  bool has_nul_list = false;
  app.add_flag("-0,--null", has_nul_list, "the paths of the list on stdin end with NUL, as written by `find -print0`");
  app.add_option("--top-k", arguments.top_k,
                 "number of classes to print for each image; default: 5, or all if there are fewer; for a multi_label network, all classes "
                 "that the image belongs to")
      ->check(CLI::PositiveNumber)
      ->default_str("");
  app.add_option("--save-grid", arguments.grid, "also write a picture of the images, as the network receives them, and their classes")
      ->type_name("FILE");
  app.add_option("--embeddings", arguments.embeddings,
                 "also write the features of each image, which are the input of the last layer, as float32 [images, features] "
                 "(numpy.load); a file that cannot be used has a row of NaN")
      ->type_name("FILE.npy");
  app.add_option("--heatmap", arguments.heatmaps,
                 "also write a picture of each image to this new folder, in which the parts that speak for its class are red (Grad-CAM)")
      ->type_name("DIR");
  app.add_option("--reject-below", arguments.reject_below,
                 "mark an image as rejected if the probability of its class is below this; default: the value in the checkpoint (trainer "
                 "calibrate)")
      ->check(CLI::Range(0.0, 1.0))
      ->default_str("");
  cli::add_tta(app, arguments.tta);
  app.add_flag("--ema", arguments.ema, "use the averaged parameters (training.ema)");
  auto* json = app.add_flag("--json", arguments.json, "print one JSON object per line instead of a table (docs/evaluation.md)");
  app.add_flag("--csv", arguments.csv, "print comma-separated values instead of a table")->excludes(json);
  add_plugin_option(app);
  cli::parse(app, args);
  std::ranges::partition_copy(given, std::back_inserter(arguments.overrides), std::back_inserter(arguments.paths), is_override);
  if (arguments.paths.empty()) throw UsageError("no image to classify; name image files, folders, or - for a list on stdin");
  if (has_nul_list) {
    if (std::ranges::find(arguments.paths, "-") == arguments.paths.end())
      throw UsageError("--null has no effect without a list on stdin; add - to the paths");
    arguments.list_separator = '\0';
  }
  return arguments;
}

// The files of all paths, in order. Adds a text to `problems` for a folder that cannot be listed or has no images.
std::vector<std::string> find_files(const PredictArguments& arguments, data::ImageMode mode, std::vector<std::string>& problems) {
  std::vector<std::string> files;
  for (const auto& path : arguments.paths) {
    if (path == "-") {
      std::istringstream list(read_standard_input(kMostListBytes));
      for (std::string file; std::getline(list, file, arguments.list_separator);) {
        if (!file.empty()) files.push_back(file);
      }
    } else {
      try {
        std::ranges::copy(datasets::find_image_files(path, mode), std::back_inserter(files));
      } catch (const DataError& error) {
        problems.emplace_back(error.what());
      }
    }
  }
  return files;
}

// Prints predictions as lines of a table, of JSON or of comma-separated values.
class Printer {
 public:
  // `files`: the names for which the first column of a table must be wide enough. With --csv, prints the header.
  Printer(const inference::Predictor& predictor, const PredictArguments& arguments, int64_t num_best, const std::vector<std::string>& files)
      : names_(predictor.output_names()),
        num_outputs_(predictor.num_outputs()),
        kind_(predictor.operating_point().kind),
        can_reject_(predictor.operating_point().reject_below > 0),
        arguments_(arguments),
        num_best_(num_best),
        width_(reporting::line_width(stdout)) {
    constexpr size_t kWidest = 60;
    for (const auto& file : files) file_width_ = std::max(file_width_, std::min(kWidest, printable_line(file).size()));
    if (arguments.csv) print_csv_header();
  }

  // A file that could not be classified (prediction.problem) is omitted in a table.
  // `heatmap`: the path of its picture, or empty.
  void print_answers(const std::string& file, const inference::Prediction& prediction, const fs::path& heatmap) const {
    if (arguments_.json) return print_json(file, prediction, heatmap);
    if (arguments_.csv) return print_csv(file, prediction);
    if (!prediction.problem.empty()) return;
    reporting::Fields fields = {{fmt::format("{:<{}}", printable_line(file), file_width_)}};
    for (size_t i = 0; i < prediction.numbers.size(); ++i) {
      fields.push_back({(names_.empty() ? "" : printable_line(names_[i]) + " ") + reporting::format_target(prediction.numbers[i])});
    }
    if (prediction.is_rejected) fields.push_back({"rejected:"});
    // For a multi_label network, only the classes that are assigned to the image.
    const auto num_shown =
        kind_ == AnswerKind::kClasses ? std::min(prediction.decided.size(), prediction.classes.size()) : prediction.classes.size();
    if (kind_ == AnswerKind::kClasses && num_shown == 0) fields.push_back({"no class"});
    auto importance = static_cast<int>(num_shown);
    for (size_t i = 0; i < num_shown; ++i) {
      const auto text = fmt::format("{} {:.2f}%", printable_line(name_of(prediction.classes[i])), 100 * prediction.probabilities[i]);
      fields.push_back({text, i == 0 ? reporting::Field::kAlways : importance});
      --importance;
    }
    print("{}\n", reporting::to_line(width_ ? reporting::fitted(fields, *width_) : fields));
  }

  // The caption of an image in a picture.
  std::string caption_of(const inference::Prediction& prediction) const {
    std::string caption;
    const auto add = [&](const std::string& text) { caption += (caption.empty() ? "" : ", ") + text; };
    for (const auto number : prediction.numbers) add(reporting::format_target(number));
    if (kind_ == AnswerKind::kNumbers) return caption;
    if (kind_ == AnswerKind::kClass) {
      return fmt::format("{} {:.0f}%", drawable_class_name(names_, prediction.classes[0]), 100 * prediction.probabilities[0]);
    }
    for (const auto label : prediction.decided) add(drawable_class_name(names_, label));
    return caption.empty() ? "no class" : caption;
  }

 private:
  using AnswerKind = inference::AnswerKind;

  std::string name_of(int64_t label) const { return reporting::name_of_class(names_, label); }

  void print_json(const std::string& file, const inference::Prediction& prediction, const fs::path& heatmap) const {
    reporting::Json line = {{"file", file}};
    if (!prediction.problem.empty()) {
      line["error"] = prediction.problem;
    } else if (kind_ == AnswerKind::kNumbers) {
      auto values = names_.empty() ? reporting::Json::array() : reporting::Json::object();
      for (size_t i = 0; i < prediction.numbers.size(); ++i) {
        names_.empty() ? values.push_back(prediction.numbers[i]) : void(values[names_[i]] = prediction.numbers[i]);
      }
      line["values"] = std::move(values);
    } else {
      if (can_reject_) line["rejected"] = prediction.is_rejected;
      auto classes = reporting::Json::array();
      for (size_t i = 0; i < prediction.classes.size(); ++i) {
        reporting::Json one = {
            {"name", name_of(prediction.classes[i])}, {"label", prediction.classes[i]}, {"probability", prediction.probabilities[i]}};
        if (kind_ == AnswerKind::kClasses) one["predicted"] = i < prediction.decided.size();
        classes.push_back(std::move(one));
      }
      line["classes"] = std::move(classes);
    }
    if (!heatmap.empty()) line["heatmap"] = heatmap.string();
    cli::print_json(line);
  }

  void print_csv_header() {
    std::vector<std::string> header = {"file", "error"};
    if (kind_ == AnswerKind::kNumbers) {
      for (int64_t i = 0; i < num_outputs_; ++i) header.push_back(names_.empty() ? fmt::format("value_{}", i + 1) : name_of(i));
    } else {
      if (can_reject_) header.emplace_back("rejected");
      if (kind_ == AnswerKind::kClasses) header.emplace_back("classes");
      for (int64_t i = 1; i <= num_best_; ++i) {
        header.push_back(fmt::format("class_{}", i));
        header.push_back(fmt::format("probability_{}", i));
      }
    }
    num_columns_ = header.size();
    print("{}", csv_line(header));
  }

  void print_csv(const std::string& file, const inference::Prediction& prediction) const {
    std::vector<std::string> cells = {file, prediction.problem};
    for (const auto number : prediction.numbers) cells.push_back(fmt::format("{}", number));
    if (can_reject_) cells.emplace_back(!prediction.problem.empty() ? "" : prediction.is_rejected ? "true" : "false");
    if (kind_ == AnswerKind::kClasses) {
      std::string decided;
      for (const auto label : prediction.decided) decided += (decided.empty() ? "" : ";") + name_of(label);
      cells.push_back(std::move(decided));
    }
    for (size_t i = 0; i < prediction.classes.size(); ++i) {
      cells.push_back(name_of(prediction.classes[i]));
      cells.push_back(fmt::format("{}", prediction.probabilities[i]));
    }
    // A file with an error has no predictions.
    cells.resize(num_columns_);
    print("{}", csv_line(cells));
  }

  std::vector<std::string> names_;
  int64_t num_outputs_;
  inference::AnswerKind kind_;
  bool can_reject_;
  const PredictArguments& arguments_;
  int64_t num_best_;
  std::optional<size_t> width_;
  size_t file_width_ = 0;
  size_t num_columns_ = 0;  // of comma-separated values
};

// Reads images as the network receives them, but without normalisation, so that they can be shown.
class ImageAsSeen {
 public:
  ImageAsSeen(const config::Experiment& experiment, const inference::Predictor& predictor)
      : reader_(predictor.samples(), without_normalize(experiment.dataset.validation_transforms),
                {torch::kFloat32, /*channels_last=*/true}) {}

  const std::vector<int64_t>& shape() const { return reader_.shape(); }  // [channels, height, width]
  // Writes [height][width][channels].
  void read(const std::string& file, float* out) {
    reader_.read_file(file, memory_, out);
    if (reader_.decoding().has_float_pixels()) stretch({out, static_cast<size_t>(c10::multiply_integers(shape()))});
  }

 private:
  inference::ImageReader reader_;
  inference::ImageReader::Memory memory_;
};

// Writes the features of all images for numpy.load(). A row is empty for a file that cannot be used.
void write_embeddings(const fs::path& file, const std::vector<std::vector<float>>& rows) {
  // https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html: version 1.0, whose header is padded to a multiple of 64 bytes.
  constexpr size_t kAlignment = 64;
  size_t num_columns = 0;
  for (const auto& row : rows) num_columns = std::max(num_columns, row.size());
  auto description = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows.size(), num_columns);
  std::string header("\x93NUMPY\x01\x00", 8);
  const auto unpadded = header.size() + 2 + description.size() + 1;
  description.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  description += '\n';
  OutputFile output(file);
  little_endian::append(header, static_cast<uint16_t>(description.size()));
  output.write(header + description);
  const std::vector<float> unusable(num_columns, std::numeric_limits<float>::quiet_NaN());
  for (const auto& row : rows) {
    const auto& values = row.empty() ? unusable : row;
    output.write({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }
  output.commit();
}

// Writes pictures of images, as the network receives them, under their heat maps.
class HeatmapFolder {
 public:
  // Makes the folder. Throws UsageError if it exists and is not empty.
  HeatmapFolder(fs::path folder, ImageAsSeen image) : folder_(std::move(folder)), image_(std::move(image)) {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (!error && fs::is_empty(folder_, error)) return;
    throw UsageError(fmt::format("--heatmap {}: {}", folder_.string(),
                                 error ? fmt::format("the folder cannot be made: {}; give another one", error.message())
                                       : "the folder is not empty; give a new one, so that no file is overwritten"));
  }

  // Returns the path of the picture, which has the name of the image; images of one name get numbers.
  fs::path write(const std::string& file, std::span<const float> heatmap) {
    const auto stem = fs::path(file).stem().string();
    auto path = folder_ / (stem + ".png");
    for (int number = 2; !paths_.insert(path).second; ++number) path = folder_ / fmt::format("{}_{}.png", stem, number);
    std::vector<float> values(static_cast<size_t>(c10::multiply_integers(image_.shape())));
    image_.read(file, values.data());
    data::write_image_file(path, draw_heatmap(image_.shape(), values, heatmap));
    return path;
  }

 private:
  fs::path folder_;
  ImageAsSeen image_;
  std::set<fs::path> paths_;
};

struct GridImage {
  std::string file;
  std::string caption;
};

void save_grid(const fs::path& output, const std::vector<GridImage>& images, ImageAsSeen reader) {
  if (images.empty()) return;
  const auto read = [&](int64_t i, float* out) {
    const auto& image = images[static_cast<size_t>(i)];
    reader.read(image.file, out);
    return image.caption;
  };
  data::write_image_file(output, draw_image_grid(reader.shape(), static_cast<int64_t>(images.size()), read));
}

}  // namespace

ExitCode predict(const std::vector<std::string>& args) {
  const auto arguments = parse_predict_arguments(args);
  install_stop_handlers();
  const auto logger = make_console_logger();
  const network::NetworkFile file(arguments.checkpoint);
  if (file.path() != arguments.checkpoint) logger->info("network of {}", file.path());
  // The experiment of a checkpoint is not checked again, because it is complete and its data set need not be on this machine.
  const auto registries = arguments.config.empty() ? recipe::registries_without_check() : recipe::all_registries();
  const int num_threads = world::default_compute_threads().count;
  auto experiment = file.load_experiment(arguments.overrides, registries, arguments.config);
  if (arguments.tta) experiment.validation.tta = *arguments.tta;
  const rank::RankContext context(std::move(experiment), {.num_threads = num_threads}, logger);
  const auto description = network::description_of(context.experiment(), file);
  std::vector<std::string> problems;
  const auto files = find_files(arguments, description.samples.decoding.mode, problems);
  for (const auto& problem : problems) logger->warn("{}", problem);
  inference::Predictor predictor(description, file.tree(), arguments.ema, context.placement());
  if (arguments.reject_below) predictor.set_reject_below(*arguments.reject_below);
  std::vector<fs::path> inputs(files.begin(), files.end());
  inputs.insert(inputs.end(), {arguments.checkpoint, arguments.config});
  if (!arguments.grid.empty()) {
    refuse_to_overwrite(arguments.grid, inputs, "--save-grid");
    data::check_image_extension(arguments.grid);
  }
  std::vector<std::vector<float>> embeddings;
  if (!arguments.embeddings.empty()) {
    refuse_to_overwrite(arguments.embeddings, inputs, "--embeddings");
    if (!predictor.has_features()) {
      throw UsageError("--embeddings: this network does not separate its features from its last layer; remove this option");
    }
  }
  std::optional<HeatmapFolder> heatmaps;
  if (!arguments.heatmaps.empty()) {
    if (!predictor.has_maps()) throw UsageError("--heatmap: this network does not provide maps of the image; remove this option");
    heatmaps.emplace(arguments.heatmaps, ImageAsSeen(context.experiment(), predictor));
  }
  const auto kind = predictor.operating_point().kind;
  // A multi_label network shows all classes of the image by default.
  const auto most = kind == inference::AnswerKind::kClasses && !arguments.top_k ? predictor.num_outputs() : arguments.top_k.value_or(5);
  const auto num_best = std::min(most, predictor.num_outputs());
  if (arguments.reject_below && kind != inference::AnswerKind::kClass) {
    throw UsageError("--reject-below: the network does not choose one class for each image; remove this option");
  }
  const Printer printer(predictor, arguments, num_best, files);
  std::vector<GridImage> grid;
  size_t num_classified = 0;
  for (size_t begin = 0; begin < files.size(); begin += kFilesAtOnce) {
    if (stop_signal() != 0) throw Error("stopped on request before all images were classified", ExitCode::kStopped);
    const auto part = std::span(files).subspan(begin, std::min(kFilesAtOnce, files.size() - begin));
    const auto predictions =
        predictor.predict(part, num_best, num_threads, {.features = !arguments.embeddings.empty(), .heatmap = heatmaps.has_value()});
    for (size_t i = 0; i < part.size(); ++i) {
      const auto& prediction = predictions[i];
      fs::path heatmap;
      if (heatmaps && prediction.problem.empty()) heatmap = heatmaps->write(part[i], prediction.heatmap);
      if (!prediction.problem.empty()) {
        problems.push_back(fmt::format("{}: {}", printable_line(part[i]), prediction.problem));
        logger->warn("{}", problems.back());
      } else {
        ++num_classified;
        if (grid.size() < kMostInGrid) grid.push_back({part[i], printer.caption_of(prediction)});
      }
      if (!arguments.embeddings.empty()) embeddings.push_back(prediction.features);
      printer.print_answers(part[i], prediction, heatmap);
    }
    flush_standard_output();
  }
  if (!arguments.embeddings.empty()) write_embeddings(arguments.embeddings, embeddings);
  if (!arguments.grid.empty()) save_grid(arguments.grid, grid, ImageAsSeen(context.experiment(), predictor));
  if (problems.empty()) return ExitCode::kDone;
  throw DataError(fmt::format("{} cannot be used, for the reasons above; {}", counted(problems.size(), "path"),
                              num_classified > 0 ? "all others were classified" : "no image was classified"));
}

}  // namespace trainer::commands
