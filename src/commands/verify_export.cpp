#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/log.h"
#include "base/signal.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "commands/command.h"
#include "commands/pictures.h"
#include "commands/sample_progress.h"
#include "data/image_file.h"
#include "data/operations/operations.h"
#include "data/picture.h"
#include "data/resample.h"
#include "data/transforms/resize_and_crop.h"
#include "datasets/download.h"
#include "datasets/folder_listing.h"
#include "export/exported_network.h"
#include "inference/predictor.h"
#include "launch/world/host_resources.h"
#include "reporting/evaluation.h"
#include "reporting/values.h"
#include "run/evaluation/file_evaluation.h"
#include "run/rank/rank_context.h"
#include "run/recipe/build.h"
#include "run/recipe/registries.h"
#include "run/samples/open_samples.h"

namespace trainer::commands {
namespace {

namespace fs = std::filesystem;

struct VerifyArguments {
  fs::path file;
  std::string checkpoint;
  fs::path data;
  evaluation::EvaluationRequest request;
  std::string preprocess = "none";
  double tolerance = 1e-3;
  bool is_trusted = false;
  std::optional<int64_t> limit;
  fs::path runtime;
  bool json = false;
};

VerifyArguments parse_verify_arguments(const std::vector<std::string>& args) {
  VerifyArguments arguments;
  CLI::App app(
      "Runs an exported file and its checkpoint on the same images, and compares their probabilities, or the numbers that they predict.\n"
      "Exits with 1 if they differ by more than --tolerance. Both compute on the CPU, without mixed precision.\n"
      "A torchscript file contains code, which this command runs and which can read and overwrite your files.",
      "trainer verify-export");
  auto& request = arguments.request;
  app.add_option("file", arguments.file, "the onnx or torchscript file")->required()->type_name("FILE");
  cli::add_checkpoint(app, arguments.checkpoint);
  auto* data =
      app.add_option("--data", arguments.data, "an image file, or a folder, which is searched for images at any depth; default: --split")
          ->type_name("DIR|FILE");
  std::string split = "validation";
  app.add_option("--split", split, "which images of the run's data set to compare")
      ->check(CLI::IsMember({"validation", "train"}))
      ->capture_default_str()
      ->excludes(data);
  app.add_option("--limit", arguments.limit, "compare this many images, evenly spaced among them; default: all")
      ->check(CLI::PositiveNumber)
      ->default_str("");
  app.add_option(
         "--preprocess", arguments.preprocess,
         "how images are resized for the exported network, to measure the effect of an application that resizes differently: opencv "
         "(bilinear without antialiasing, cv::INTER_LINEAR), pillow-bilinear, or none: the same as for the checkpoint")
      ->check(CLI::IsMember({"opencv", "pillow-bilinear", "none"}))
      ->capture_default_str();
  app.add_option("--tolerance", arguments.tolerance,
                 "the largest accepted difference of probabilities; for predicted numbers, divided by the standard deviation of the "
                 "training targets")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--trust", arguments.is_trusted, "run a torchscript file whose description does not name this checkpoint");
  app.add_option("--runtime", arguments.runtime,
                 "the library that runs onnx files, libonnxruntime.so; default: the library of the system, or else that in the package "
                 "onnxruntime of "
                 "python3")
      ->type_name("FILE");
  app.add_flag("--ema", request.averaged, "compare with the averaged parameters (training.ema)");
  app.add_flag("--json", arguments.json, "print one JSON object instead of a table (docs/evaluation.md)");
  app.add_option("overrides", request.overrides, "overrides of keys of the experiment, such as dataset.root=/data")->type_name("key=value");
  add_plugin_option(app);
  cli::parse(app, args);
  request.split = split == "train" ? data::Split::kTrain : data::Split::kValidation;
  return arguments;
}

// The images to compare, of any size: files, or samples of the run's data set.
class Images {
 public:
  Images(std::vector<std::string> files, bool is_turned_upright) : files_(std::move(files)), is_turned_upright_(is_turned_upright) {}
  Images(engine::Samples samples, bool is_turned_upright) : samples_(std::move(samples)), is_turned_upright_(is_turned_upright) {}

  int64_t size() const { return samples_ ? samples_->size() : std::ssize(files_); }
  std::string name(int64_t index) const { return samples_ ? samples_->dataset().describe(index) : files_[static_cast<size_t>(index)]; }
  // In colour; images for a grey network are converted later. Throws std::runtime_error with only the reason.
  data::RgbImage read(int64_t index) {
    std::span<const uint8_t> encoded;
    if (samples_) {
      const auto sample = samples_->dataset().read(index, scratch_);
      if (sample.encoded.empty()) return rgb_of({sample.image, memory_});
      encoded = sample.encoded;
    } else {
      encoded = read_bytes(files_[static_cast<size_t>(index)], file_);
    }
    return rgb_of({encoded, memory_, {.mode = data::ImageMode::kRgb, .is_turned_upright = is_turned_upright_}});
  }

 private:
  std::vector<std::string> files_;
  std::optional<engine::Samples> samples_;
  bool is_turned_upright_;
  data::Scratch scratch_;
  std::vector<uint8_t> file_;
  data::PictureMemory memory_;
};

// Resizes images to the size that the checkpoint's first transform gives them, but with another method.
class Resizer {
 public:
  // `way`: the value of --preprocess. Throws UsageError if the first transform is not `resize`.
  Resizer(std::string way, const inference::ImageFileInput& input) : way_(std::move(way)) {
    if (way_ == "none") return;
    if (!input.transforms.empty()) {
      const auto transform = data::transform_registry().make(input.transforms.front());
      const auto* image_transform = std::get_if<std::shared_ptr<const data::ImageTransform>>(&transform);
      if (image_transform != nullptr) resize_ = std::dynamic_pointer_cast<const data::Resize>(*image_transform);
    }
    if (resize_) return;
    throw UsageError(
        fmt::format("--preprocess {}: dataset.validation_transforms of the checkpoint do not begin with resize; remove this option", way_));
  }

  void resize(data::RgbImage& colours) {
    if (!resize_) return;
    auto& [height, width, pixels] = colours;
    const auto target = resize_->plan({height, width});
    resized_.resize(static_cast<size_t>(target.height) * static_cast<size_t>(target.width) * 3);
    if (way_ == "opencv") {
      data::resize_without_antialiasing(pixels.data(), height, width, target.height, target.width, resized_.data());
    } else {
      const auto image = data::ImageView::whole(pixels.data(), 3, height, width, data::PixelOrder::kInterleaved);
      const data::Box whole{0, 0, target.height, target.width};
      const auto needed = data::prepare_resample(image, target.height, target.width, whole, data::Interpolation::kBilinear, memory_);
      data::resample(image, target.height, target.width, whole, needed, memory_, resized_.data());
    }
    pixels.swap(resized_);
    height = target.height;
    width = target.width;
  }

 private:
  std::string way_;
  std::shared_ptr<const data::Resize> resize_;  // null: images are not resized
  std::vector<uint8_t> resized_;
  data::ResampleMemory memory_;
};

struct OtherClass {
  std::string image;
  int64_t label = 0;  // the most probable class according to the checkpoint
  double probability = 0;
  int64_t label_of_file = 0;
  double probability_of_file = 0;
};

// The result of the comparison.
struct Difference {
  int64_t num_images = 0;
  int64_t num_unusable = 0;
  int64_t num_unreadable = 0;  // of these, images that cannot be read
  double largest = 0;
  std::string image_of_largest;
  double mean = 0;
  std::vector<OtherClass> other_classes;
};

// Compares the answers of the checkpoint's network and of the exported one.
class Comparison {
 public:
  // Throws UsageError if the checkpoint's network takes images of more than 8 bits per channel, or if the file takes an input of another
  // shape.
  Comparison(inference::Predictor& predictor, exported::ExportedNetwork& network, std::string file, std::string checkpoint, Images images,
             Resizer resizer, Logger& logger)
      : predictor_(predictor),
        network_(network),
        file_(std::move(file)),
        checkpoint_(std::move(checkpoint)),
        images_(std::move(images)),
        resizer_(std::move(resizer)),
        logger_(logger) {
    if (const auto& deviation = predictor_.operating_point().deviation; !deviation.empty()) {
      deviation_ = torch::tensor(deviation, torch::kFloat64);
    }
    const auto& decoding = predictor_.reader().decoding();
    if (decoding.has_float_pixels()) {
      throw UsageError(
          fmt::format("{}: its network takes images of dataset.mode: {}, but this command compares only images of 8 bits per channel",
                      checkpoint_, data::name_of(decoding.mode)));
    }
    const auto& shape = network_.input_shape;
    if (shape.empty()) return;
    auto wanted = predictor_.reader().shape();
    if (network_.input_dtype == torch::kUInt8) wanted = {-1, -1, wanted[0]};
    const bool fits = shape.size() == 4 && std::ranges::equal(wanted, std::span(shape).subspan(1), is_size);
    if (fits) return;
    throw UsageError(fmt::format("{}: its input has the shape [{}], but the network of the checkpoint needs [-1, {}]; {}", file_,
                                 fmt::join(shape, ", "), fmt::join(wanted, ", "), kOtherCheckpoint));
  }

  // Images that cannot be used are logged and counted. Throws DataError if none can be used, and Error after a stop request.
  Difference compare(const std::vector<int64_t>& indices) {
    for (size_t i = 0; i < indices.size(); ++i) {
      if (stop_signal() != 0) throw Error("stopped on request before all images were compared", ExitCode::kStopped);
      compare_one(indices[i]);
      progress_.update(static_cast<int64_t>(i + 1), std::ssize(indices));
    }
    progress_.clear();
    if (result_.num_images == 0) {
      throw DataError(indices.empty() ? "there are no images to compare" : "no image could be compared, for the reasons above");
    }
    result_.mean /= static_cast<double>(result_.num_images);
    return result_;
  }

 private:
  static constexpr auto kOtherCheckpoint = "use the checkpoint from which it was exported";

  void compare_one(int64_t index) {
    const auto name = images_.name(index);
    data::RgbImage image;
    if (!use(name, [&] { image = images_.read(index); })) {
      ++result_.num_unreadable;
      return;
    }
    use(name, [&] {
      const auto answer = by_checkpoint(image, name);
      resizer_.resize(image);
      add(name, answer, by_file(image, name));
    });
  }

  // Returns whether the image could be used.
  bool use(const std::string& name, const std::function<void()>& work) {
    try {
      work();
      return true;
    } catch (const Error&) {
      throw;
    } catch (const std::runtime_error& error) {
      ++result_.num_unusable;
      progress_.log_above([&] { logger_.warn("{}: {}", printable_line(name), error.what()); });
      return false;
    }
  }

  void add(const std::string& image, const torch::Tensor& checkpoint, const torch::Tensor& file) {
    const auto difference = (checkpoint - file).abs() / deviation_;
    const auto largest = difference.max().item<double>();
    if (result_.num_images == 0 || largest > result_.largest) {
      result_.largest = largest;
      result_.image_of_largest = image;
    }
    result_.mean += difference.mean().item<double>();
    ++result_.num_images;
    if (predictor_.operating_point().kind != inference::AnswerKind::kClass) return;
    const auto label = checkpoint.argmax().item<int64_t>();
    const auto label_of_file = file.argmax().item<int64_t>();
    if (label == label_of_file) return;
    result_.other_classes.push_back({image, label, checkpoint[label].item<double>(), label_of_file, file[label_of_file].item<double>()});
  }

  // The probabilities of the classes, or numbers: float64 [outputs]. Throws std::runtime_error with only the reason if the image cannot be
  // used, and Error if a value is not a finite number. `image`: the name of the image.
  torch::Tensor by_checkpoint(const data::RgbImage& colours, const std::string& image) {
    return require_numbers(predictor_.compute(prepare(colours), false).answers[0], checkpoint_, image);
  }
  torch::Tensor by_file(const data::RgbImage& colours, const std::string& image) {
    const auto& shape = network_.input_shape;
    const auto batch = shape.empty() ? 1 : std::max<int64_t>(shape[0], 1);
    auto input = network_.input_dtype == torch::kUInt8 ? image_of(colours) : prepare(colours).to(network_.input_dtype);
    input = input.expand({batch, -1, -1, -1}).contiguous();
    const auto output = network_.run(input).to(torch::kFloat64);
    const auto num_outputs = predictor_.num_outputs();
    if (output.dim() != 2 || output.size(0) != batch || output.size(1) != num_outputs) {
      throw UsageError(
          fmt::format("{}: its output has the shape [{}], but the checkpoint has {}; {}", file_, fmt::join(output.sizes(), ", "),
                      predictor_.samples().num_classes > 0 ? counted(num_outputs, "class", "classes") : counted(num_outputs, "number"),
                      kOtherCheckpoint));
    }
    return require_numbers((network_.gives_answers ? output : inference::answers_of(predictor_.operating_point(), output))[0], file_,
                           image);
  }

  // -1 stands for any size.
  static bool is_size(int64_t one, int64_t other) { return one < 0 || other < 0 || one == other; }

  static std::string size_text(int64_t size) { return size < 0 ? "any number of pixels" : std::to_string(size); }

  static torch::Tensor require_numbers(torch::Tensor values, const std::string& file, const std::string& image) {
    if (values.isfinite().all().item<bool>()) return values;
    throw Error(fmt::format("{}: its values for {} are not finite numbers and cannot be compared", file, image));
  }

  torch::Tensor prepare(const data::RgbImage& colours) {
    memory_.pixels = colours.pixels;
    auto batch = predictor_.make_batch(1);
    predictor_.reader().read_pixels(colours.height, colours.width, memory_, batch.data_ptr());
    return batch;
  }

  torch::Tensor image_of(const data::RgbImage& colours) {
    const auto& shape = network_.input_shape;
    if (!shape.empty() && !(is_size(shape[1], colours.height) && is_size(shape[2], colours.width))) {
      throw std::runtime_error(
          fmt::format("it is {} pixels wide and {} high, but the exported network takes only images that are {} wide and {} high; resize "
                      "it, or export the network without --image-size",
                      colours.width, colours.height, size_text(shape[2]), size_text(shape[1])));
    }
    memory_.pixels = colours.pixels;
    const bool is_grey = predictor_.samples().shape[0] == 1;
    if (is_grey) data::to_grayscale({.data = memory_.pixels.data(), .channels = 3, .height = colours.height, .width = colours.width});
    const auto image = torch::from_blob(memory_.pixels.data(), {1, colours.height, colours.width, 3}, torch::kUInt8);
    return is_grey ? image.slice(3, 0, 1) : image;
  }

  inference::Predictor& predictor_;
  exported::ExportedNetwork& network_;
  std::string file_;
  std::string checkpoint_;
  Images images_;
  Resizer resizer_;
  Logger& logger_;
  inference::ImageReader::Memory memory_;
  // Numbers are compared in units of the standard deviation of their targets, so that one tolerance fits all.
  torch::Tensor deviation_ = torch::ones({1}, torch::kFloat64);
  Difference result_;
  SampleProgress progress_{"compared", logger_, 0, kLongWait};
};

void print_difference(const VerifyArguments& arguments, const Difference& difference, const std::string& engine,
                      const std::string& checkpoint, const inference::Predictor& predictor) {
  const auto name_of = [&](int64_t label) { return reporting::name_of_class(predictor.output_names(), label); };
  const auto file = arguments.file.string();
  if (arguments.json) {
    auto others = reporting::Json::array();
    for (const auto& one : difference.other_classes) {
      others.push_back(
          {{"image", one.image},
           {"checkpoint", {{"name", name_of(one.label)}, {"label", one.label}, {"probability", one.probability}}},
           {"file", {{"name", name_of(one.label_of_file)}, {"label", one.label_of_file}, {"probability", one.probability_of_file}}}});
    }
    return cli::print_json({{"file", file},
                            {"checkpoint", checkpoint},
                            {"engine", engine},
                            {"preprocess", arguments.preprocess},
                            {"num_images", difference.num_images},
                            {"num_unusable", difference.num_unusable},
                            {"largest_difference", difference.largest},
                            {"image_of_largest_difference", difference.image_of_largest},
                            {"mean_difference", difference.mean},
                            {"other_first_class", std::move(others)}});
  }
  print("{}: {} with {}, and {}\n", counted(difference.num_images, "image"), file, engine, checkpoint);
  print("largest difference of a {}  {:.2e}, of {}\n", predictor.samples().num_classes > 0 ? "probability" : "number     ",
        difference.largest, printable_line(difference.image_of_largest));
  print("mean difference                      {:.2e}\n", difference.mean);
  if (predictor.operating_point().kind == inference::AnswerKind::kClass) {
    print("different most probable class        {}\n", counted(difference.other_classes.size(), "image"));
  }
  for (const auto& one : difference.other_classes) {
    print("  {}: {} {:.2f}%, by the checkpoint {} {:.2f}%\n", printable_line(one.image), printable_line(name_of(one.label_of_file)),
          100 * one.probability_of_file, printable_line(name_of(one.label)), 100 * one.probability);
  }
}

config::Experiment load_experiment(const VerifyArguments& arguments, const network::NetworkFile& file) {
  // With --data, the data set of the training need not exist on this machine, so it is not checked.
  auto experiment = arguments.data.empty() ? evaluation::load_evaluation(file, arguments.request, /*rank=*/0, recipe::all_registries())
                                           : file.load_experiment(arguments.request.overrides, recipe::registries_without_check());
  experiment.runtime.device = device::DeviceChoice::kCpu;
  experiment.amp.enabled.value = false;
  experiment.validation.tta = task::TestTimeAugmentation::kNone;
  return experiment;
}

Images open_images(const VerifyArguments& arguments, const config::Experiment& experiment, const network::NetworkFile& file,
                   bool is_turned_upright, Logger& logger) {
  if (!arguments.data.empty()) return {datasets::find_image_files(arguments.data), is_turned_upright};
  const auto data = evaluation::find_evaluation_data(experiment, file, arguments.request);
  if (!data.note.empty()) logger.warn("{}", data.note);
  auto samples = samples::open_split(experiment, data.dataset, data.split, logger);
  const bool are_turned_upright = samples.info().decoding.is_turned_upright;
  return {std::move(samples), are_turned_upright};
}

enum class SameCheckpoint { kYes, kNo, kUnknown };

std::string advice(const VerifyArguments& arguments, SameCheckpoint is_same) {
  if (is_same == SameCheckpoint::kNo) return "export it again from this checkpoint";
  if (arguments.preprocess != "none")
    return fmt::format("without --preprocess {}, the command compares the networks on the same pixels", arguments.preprocess);
  if (is_same == SameCheckpoint::kYes) return "if the file uses float16, set a larger --tolerance";
  return "use the checkpoint from which it was exported";
}

}  // namespace

ExitCode verify_export(const std::vector<std::string>& args) {
  const auto arguments = parse_verify_arguments(args);
  install_stop_handlers();
  const auto logger = make_console_logger();
  const network::NetworkFile file(arguments.checkpoint);
  const rank::RankContext context(load_experiment(arguments, file), {.num_threads = world::default_compute_threads().count}, logger);
  const auto& experiment = context.experiment();
  inference::Predictor predictor(network::description_of(experiment, file), file.tree(), arguments.request.averaged, context.placement());
  const auto digest = datasets::digest_of(file.path(), "SHA256");
  const auto network = exported::open_network(arguments.file, arguments.runtime, arguments.is_trusted ? "" : digest);
  auto is_same = SameCheckpoint::kUnknown;
  if (const auto& stored = network->checkpoint_sha256; !stored.empty()) {
    is_same = stored == digest ? SameCheckpoint::kYes : SameCheckpoint::kNo;
  }
  if (is_same == SameCheckpoint::kNo) {
    logger->warn("{0} was not exported from {1}, or {1} was changed after the export, for example by trainer calibrate; export it again",
                 arguments.file.string(), file.path());
  }
  Resizer resizer(arguments.preprocess, inference::input_of_image_files(predictor.samples(), experiment.dataset.validation_transforms));
  auto images = open_images(arguments, experiment, file, predictor.samples().decoding.is_turned_upright, *logger);
  const auto indices = data::evenly_spaced(images.size(), arguments.limit.value_or(images.size()));
  Comparison comparison(predictor, *network, arguments.file.string(), file.path(), std::move(images), std::move(resizer), *logger);
  const auto difference = comparison.compare(indices);
  print_difference(arguments, difference, network->engine, file.path(), predictor);
  if (difference.largest > arguments.tolerance) {
    throw Error(fmt::format("{}: a {} differs by {:.2e}, more than --tolerance {:g}, from that of {}; {}", arguments.file.string(),
                            predictor.samples().num_classes > 0 ? "probability" : "number", difference.largest, arguments.tolerance,
                            file.path(), advice(arguments, is_same)));
  }
  const bool may_skip = arguments.data.empty() && experiment.dataset.on_error == config::OnError::kSkip;
  if (difference.num_unusable == (may_skip ? difference.num_unreadable : 0)) return ExitCode::kDone;
  throw DataError(
      fmt::format("{} cannot be used, for the reasons above; all others were compared", counted(difference.num_unusable, "image")));
}

}  // namespace trainer::commands
