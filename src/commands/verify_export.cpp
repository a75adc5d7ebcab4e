#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
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
#include "commands/run_end.h"
#include "commands/sample_progress.h"
#include "data/image_file.h"
#include "data/operations/operations.h"
#include "data/resample.h"
#include "data/transforms/resize_and_crop.h"
#include "datasets/download.h"
#include "datasets/folder_listing.h"
#include "export/exported_network.h"
#include "inference/predictor.h"
#include "launch/world/host_resources.h"
#include "reporting/values.h"
#include "run/session/build.h"
#include "run/session/evaluation.h"
#include "run/session/rank_context.h"
#include "run/session/registries.h"

namespace trainer::commands {
namespace {

namespace fs = std::filesystem;

struct VerifyArguments {
  fs::path file;
  std::string checkpoint;
  fs::path data;
  session::EvaluationRequest request;
  std::string preprocess = "none";
  double tolerance = 1e-3;
  std::optional<int64_t> limit;
  fs::path runtime;
  bool json = false;
};

VerifyArguments parse_verify_arguments(const std::vector<std::string>& args) {
  VerifyArguments arguments;
  CLI::App app(
      "Runs an exported file and its checkpoint on the same images, and compares their probabilities.\n"
      "Exits with 1 if they differ by more than --tolerance. Both compute on the CPU, without mixed precision.",
      "trainer verify-export");
  auto& request = arguments.request;
  app.add_option("file", arguments.file, "the onnx or torchscript file")->required()->type_name("FILE");
  app.add_option("--checkpoint", arguments.checkpoint, "the checkpoint, or the folder of a run, whose best.pt is taken")
      ->required()
      ->type_name("FILE|DIR");
  auto* data = app.add_option("--data", arguments.data, "an image file, or a folder, whose images are found at any depth; default: --split")
                   ->type_name("DIR|FILE");
  std::string split = "validation";
  app.add_option("--split", split, "the images of the training's data set to compare")
      ->check(CLI::IsMember({"validation", "train"}))
      ->capture_default_str()
      ->excludes(data);
  app.add_option("--limit", arguments.limit, "compare this many images, evenly spaced among them; default: all")
      ->check(CLI::PositiveNumber)
      ->default_str("");
  app.add_option("--preprocess", arguments.preprocess,
                 "how an image is resized before the file gets it, to see what an application loses that resizes in another way: opencv "
                 "(bilinear without antialiasing, cv::INTER_LINEAR), pillow-bilinear, or none: as the checkpoint resizes it")
      ->check(CLI::IsMember({"opencv", "pillow-bilinear", "none"}))
      ->capture_default_str();
  app.add_option("--tolerance", arguments.tolerance, "the largest difference of a probability that is accepted")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option(
         "--runtime", arguments.runtime,
         "the library that runs onnx files, libonnxruntime.so; default: that of the system, else that of the package onnxruntime of "
         "python3")
      ->type_name("FILE");
  app.add_flag("--ema", request.averaged, "compare with the averaged parameters (training.ema)");
  app.add_flag("--json", arguments.json, "print one JSON object instead of a table (docs/evaluation.md)");
  app.add_option("overrides", request.overrides, "keys to set to other values than in the experiment, such as dataset.root=/data")
      ->type_name("key=value");
  add_plugin_option(app);
  cli::parse(app, args);
  request.split = split == "train" ? data::Split::kTrain : data::Split::kValidation;
  return arguments;
}

// The images that are compared, of any size.
class Images {
 public:
  virtual ~Images() = default;
  virtual int64_t size() const = 0;
  virtual std::string name(int64_t index) const = 0;
  // Sets `pixels` to [height][width][3]. Throws std::runtime_error with only the reason.
  virtual data::Frame read(int64_t index, std::vector<uint8_t>& pixels) = 0;
};

class ImageFiles : public Images {
 public:
  explicit ImageFiles(const fs::path& path) {
    std::error_code none;
    if (!fs::is_directory(path, none)) {
      files_.push_back(path.string());
      return;
    }
    for (const auto& file : datasets::list_image_files(path)) files_.push_back((path / file).string());
  }
  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  std::string name(int64_t index) const override { return files_.at(static_cast<size_t>(index)); }
  data::Frame read(int64_t index, std::vector<uint8_t>& pixels) override {
    const auto image = data::decode_image(read_bytes(name(index), file_), pixels);
    pixels.resize(static_cast<size_t>(image.height) * static_cast<size_t>(image.width) * 3);
    return {image.height, image.width};
  }

 private:
  std::vector<std::string> files_;
  std::vector<uint8_t> file_;
};

class ImagesOfSplit : public Images {
 public:
  explicit ImagesOfSplit(engine::Samples samples) : samples_(std::move(samples)) {}
  int64_t size() const override { return samples_.size(); }
  std::string name(int64_t index) const override { return samples_.dataset().describe(index); }
  data::Frame read(int64_t index, std::vector<uint8_t>& pixels) override {
    const auto sample = samples_.dataset().read(index, scratch_);
    auto image = sample.image;
    if (!sample.encoded.empty()) image = data::decode_image(sample.encoded, decoded_);
    const auto height = static_cast<size_t>(image.height);
    const auto width = static_cast<size_t>(image.width);
    const auto channels = static_cast<size_t>(image.channels);
    const bool is_planar = image.order == data::PixelOrder::kPlanar;
    pixels.resize(height * width * 3);
    for (size_t i = 0; i < height * width; ++i) {
      for (size_t c = 0; c < 3; ++c) {
        const auto channel = std::min(c, channels - 1);  // a grey image has one
        pixels[3 * i + c] = image.pixels[is_planar ? channel * height * width + i : i * channels + channel];
      }
    }
    return {image.height, image.width};
  }

 private:
  engine::Samples samples_;
  data::Scratch scratch_;
  std::vector<uint8_t> decoded_;
};

// Resizes images in place to the size that the first transform which resizes gives them, but in another way.
class Resizer {
 public:
  // `way`: of --preprocess. Throws UsageError if no transform resizes.
  Resizer(std::string way, const inference::ImageFileInput& input) : way_(std::move(way)) {
    if (way_ == "none") return;
    for (const auto& component : input.transforms) {
      const auto transform = data::transform_registry().make(component);
      const auto* image_transform = std::get_if<std::shared_ptr<const data::ImageTransform>>(&transform);
      if (image_transform != nullptr) resize_ = std::dynamic_pointer_cast<const data::Resize>(*image_transform);
      if (resize_) return;
    }
    throw UsageError(
        fmt::format("--preprocess {}: dataset.validation_transforms of the checkpoint do not resize images; leave it out", way_));
  }

  data::Frame resize(const data::Frame& size, std::vector<uint8_t>& pixels) {
    if (!resize_) return size;
    const auto target = resize_->plan(size);
    resized_.resize(static_cast<size_t>(target.height) * static_cast<size_t>(target.width) * 3);
    if (way_ == "opencv") {
      data::resize_without_antialiasing(pixels.data(), size.height, size.width, target.height, target.width, resized_.data());
    } else {
      const auto image = data::ImageView::whole(pixels.data(), 3, size.height, size.width, data::PixelOrder::kInterleaved);
      const data::Box whole{0, 0, target.height, target.width};
      const auto needed = data::prepare_resample(image, target.height, target.width, whole, data::Interpolation::kBilinear, memory_);
      data::resample(image, target.height, target.width, whole, needed, memory_, resized_.data());
    }
    pixels.swap(resized_);
    return target;
  }

 private:
  std::string way_;
  std::shared_ptr<const data::Resize> resize_;  // null: images stay as they are
  std::vector<uint8_t> resized_;
  data::ResampleMemory memory_;
};

// The answers of the checkpoint's network and of the exported one for an image.
class Comparison {
 public:
  // Throws UsageError if the file takes another kind of input than the checkpoint's network.
  Comparison(inference::Predictor& predictor, exported::ExportedNetwork& network, std::string file)
      : predictor_(predictor), network_(network), file_(std::move(file)) {
    const auto& shape = network_.input_shape();
    if (shape.empty()) return;
    auto wanted = predictor_.reader().shape();
    if (network_.input_dtype() == torch::kUInt8) wanted = {-1, -1, wanted[0]};
    const bool fits = shape.size() == 4 && std::ranges::equal(wanted, std::span(shape).subspan(1), is_size);
    if (fits) return;
    throw UsageError(fmt::format("{}: its input has the shape [{}], and the network of the checkpoint needs [-1, {}]; {}", file_,
                                 fmt::join(shape, ", "), fmt::join(wanted, ", "), kOtherCheckpoint));
  }

  struct Answer {
    torch::Tensor probabilities;  // float64 [classes]
    double milliseconds = 0;      // from pixels to probabilities
  };
  Answer by_checkpoint(const data::Frame& size, const std::vector<uint8_t>& pixels) {
    return timed([&] { return predictor_.compute(prepare(size, pixels), false).probabilities[0]; });
  }
  // Throws std::runtime_error if the file takes images of another size alone.
  Answer by_file(const data::Frame& size, const std::vector<uint8_t>& pixels) {
    const auto& shape = network_.input_shape();
    const auto batch = shape.empty() ? 1 : std::max<int64_t>(shape[0], 1);
    auto answer = timed([&] {
      auto input = network_.input_dtype() == torch::kUInt8 ? image_of(size, pixels) : prepare(size, pixels).to(network_.input_dtype());
      input = input.expand({batch, -1, -1, -1}).contiguous();
      const auto output = network_.run(input).to(torch::kFloat64);
      const auto num_classes = predictor_.num_classes();
      if (output.dim() != 2 || output.size(0) != batch || output.size(1) != num_classes) {
        throw UsageError(fmt::format("{}: its output has the shape [{}], and the checkpoint has {}; {}", file_,
                                     fmt::join(output.sizes(), ", "), counted(num_classes, "class", "classes"), kOtherCheckpoint));
      }
      return network_.gives_probabilities() ? output[0] : (output[0] / predictor_.operating_point().temperature).softmax(0);
    });
    answer.milliseconds /= static_cast<double>(batch);
    return answer;
  }

 private:
  static constexpr auto kOtherCheckpoint = "give the checkpoint that it was exported from";

  // -1 stands for any size.
  static bool is_size(int64_t one, int64_t other) { return one < 0 || other < 0 || one == other; }

  template <class Compute>
  static Answer timed(const Compute& compute) {
    const auto begin = std::chrono::steady_clock::now();
    const auto probabilities = compute();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    return {probabilities, time.count()};
  }

  torch::Tensor prepare(const data::Frame& size, const std::vector<uint8_t>& pixels) {
    memory_.pixels = pixels;
    auto batch = predictor_.make_batch(1);
    predictor_.reader().read_pixels(size.height, size.width, memory_, batch.data_ptr());
    return batch;
  }

  torch::Tensor image_of(const data::Frame& size, const std::vector<uint8_t>& pixels) {
    const auto& shape = network_.input_shape();
    if (!shape.empty() && !(is_size(shape[1], size.height) && is_size(shape[2], size.width))) {
      throw std::runtime_error(
          fmt::format("it has {} x {} pixels, and the file takes {} x {} alone", size.height, size.width, shape[1], shape[2]));
    }
    memory_.pixels = pixels;
    const bool is_grey = predictor_.samples().shape[0] == 1;
    if (is_grey) data::to_grayscale({.data = memory_.pixels.data(), .channels = 3, .height = size.height, .width = size.width});
    const auto image = torch::from_blob(memory_.pixels.data(), {1, size.height, size.width, 3}, torch::kUInt8);
    return is_grey ? image.slice(3, 0, 1) : image;
  }

  inference::Predictor& predictor_;
  exported::ExportedNetwork& network_;
  std::string file_;
  inference::ImageReader::Memory memory_;
};

struct Flip {
  std::string image;
  int64_t label = 0;  // the most probable class by the checkpoint
  double probability = 0;
  int64_t label_of_file = 0;
  double probability_of_file = 0;
};

struct Difference {
  int64_t num_images = 0;
  double largest = 0;  // infinity: a probability is not a number
  std::string image_of_largest;
  double mean = 0;
  std::vector<Flip> flips;
  double milliseconds = 0;  // medians
  double milliseconds_of_file = 0;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

class Differences {
 public:
  void add(const std::string& image, const Comparison::Answer& checkpoint, const Comparison::Answer& file) {
    const auto difference = (checkpoint.probabilities - file.probabilities).abs();
    auto largest = difference.max().item<double>();
    if (!(largest <= 1)) largest = std::numeric_limits<double>::infinity();
    if (result_.num_images == 0 || largest > result_.largest) {
      result_.largest = largest;
      result_.image_of_largest = image;
    }
    sum_ += difference.mean().item<double>();
    ++result_.num_images;
    milliseconds_.push_back(checkpoint.milliseconds);
    milliseconds_of_file_.push_back(file.milliseconds);
    const auto label = checkpoint.probabilities.argmax().item<int64_t>();
    const auto label_of_file = file.probabilities.argmax().item<int64_t>();
    if (label == label_of_file) return;
    result_.flips.push_back(
        {image, label, checkpoint.probabilities[label].item<double>(), label_of_file, file.probabilities[label_of_file].item<double>()});
  }

  // After one image at least.
  Difference result() const {
    auto result = result_;
    result.mean = sum_ / static_cast<double>(result.num_images);
    result.milliseconds = median(milliseconds_);
    result.milliseconds_of_file = median(milliseconds_of_file_);
    return result;
  }

 private:
  Difference result_;
  double sum_ = 0;
  std::vector<double> milliseconds_, milliseconds_of_file_;
};

void print_difference(const VerifyArguments& arguments, const Difference& difference, const std::string& engine,
                      const std::string& checkpoint, const std::vector<std::string>& class_names) {
  const auto name_of = [&](int64_t label) { return reporting::name_of_class(class_names, label); };
  const auto file = arguments.file.string();
  if (arguments.json) {
    auto flips = reporting::Json::array();
    for (const auto& flip : difference.flips) {
      flips.push_back(
          {{"image", flip.image},
           {"checkpoint", {{"name", name_of(flip.label)}, {"label", flip.label}, {"probability", flip.probability}}},
           {"file", {{"name", name_of(flip.label_of_file)}, {"label", flip.label_of_file}, {"probability", flip.probability_of_file}}}});
    }
    return cli::print_json({{"file", file},
                            {"checkpoint", checkpoint},
                            {"engine", engine},
                            {"preprocess", arguments.preprocess},
                            {"num_images", difference.num_images},
                            {"largest_difference", difference.largest},
                            {"image_of_largest_difference", difference.image_of_largest},
                            {"mean_difference", difference.mean},
                            {"other_first_class", std::move(flips)},
                            {"milliseconds", {{"file", difference.milliseconds_of_file}, {"checkpoint", difference.milliseconds}}}});
  }
  print("{}: {} with {}, and {}\n", counted(difference.num_images, "image"), file, engine, checkpoint);
  print("largest difference of a probability  {:.2e}, of {}\n", difference.largest, printable_line(difference.image_of_largest));
  print("mean difference                      {:.2e}\n", difference.mean);
  print("another most probable class          {}\n", counted(difference.flips.size(), "image"));
  for (const auto& flip : difference.flips) {
    print("  {}: {} {:.2f}%, by the checkpoint {} {:.2f}%\n", printable_line(flip.image), printable_line(name_of(flip.label_of_file)),
          100 * flip.probability_of_file, printable_line(name_of(flip.label)), 100 * flip.probability);
  }
  print("milliseconds an image                {:.2f}, by the checkpoint {:.2f}\n", difference.milliseconds_of_file,
        difference.milliseconds);
}

// Empty: it was exported from this file, or does not tell.
std::string note_on_origin(const exported::ExportedNetwork& network, const fs::path& file, const std::string& checkpoint) {
  const auto description = nlohmann::json::parse(network.description(), nullptr, /*allow_exceptions=*/false);
  const auto digest = description.is_object() ? description.value("checkpoint_sha256", "") : "";
  if (digest.empty() || digest == datasets::digest_of(checkpoint, "SHA256")) return "";
  return fmt::format(
      "{} was not exported from {} as it is now, but from another checkpoint or before a change, such as by trainer calibrate",
      file.string(), checkpoint);
}

config::Experiment load_experiment(const VerifyArguments& arguments, const session::NetworkFile& file) {
  auto registries = session::all_registries();
  // The data set of the training need not be on this machine.
  if (!arguments.data.empty()) registries.check = {};
  auto experiment = arguments.data.empty() ? session::load_evaluation(file, arguments.request, /*rank=*/0, registries)
                                           : file.load_experiment(arguments.request.overrides, registries);
  experiment.runtime.device = device::DeviceChoice::kCpu;
  experiment.amp.enabled.value = false;
  experiment.validation.tta = task::TestTimeAugmentation::kNone;
  return experiment;
}

std::unique_ptr<Images> open_images(const VerifyArguments& arguments, const config::Experiment& experiment,
                                    const session::NetworkFile& file, Logger& logger) {
  if (!arguments.data.empty()) return std::make_unique<ImageFiles>(arguments.data);
  const auto data = session::find_evaluation_data(experiment, file, arguments.request);
  return std::make_unique<ImagesOfSplit>(session::open_split(experiment, data.dataset, data.split, logger));
}

// Compares the images at these indices, of which there is one at least; those that cannot be used are logged and counted.
class Run {
 public:
  Run(Images& images, Comparison& comparison, Resizer& resizer, Logger& logger)
      : images_(images), comparison_(comparison), resizer_(resizer), logger_(logger) {}

  void compare(const std::vector<int64_t>& indices) {
    constexpr size_t kWorthShowing = 100;
    if (indices.size() >= kWorthShowing) progress_.emplace("compared", 0, static_cast<int64_t>(indices.size()), logger_);
    for (size_t begin = 0; begin < indices.size(); begin += kAtOnce) {
      if (stop_signal() != 0) throw Error("stopped on request before all images were compared", ExitCode::kStopped);
      const auto part = std::span(indices).subspan(begin, std::min(kAtOnce, indices.size() - begin));
      compare_some(part);
      if (progress_) progress_->update(static_cast<int64_t>(begin + part.size()));
    }
    progress_.reset();
  }

  const Differences& differences() const { return differences_; }
  int64_t num_unusable() const { return num_unusable_; }

 private:
  // The threads of one library look for more work for a while, and slow the other down, so that the first times after a change between them
  // are not typical.
  static constexpr size_t kAtOnce = 8;

  struct Compared {
    std::string name;
    data::Frame size;
    std::vector<uint8_t> pixels;
    Comparison::Answer answer;
  };

  void compare_some(std::span<const int64_t> indices) {
    std::vector<Compared> loaded;
    for (const auto index : indices) {
      Compared one{.name = images_.name(index), .size = {}, .pixels = {}, .answer = {}};
      use(one.name, [&] {
        one.size = images_.read(index, one.pixels);
        loaded.push_back(std::move(one));
      });
    }
    for (auto& one : loaded) one.answer = comparison_.by_checkpoint(one.size, one.pixels);
    for (auto& one : loaded) {
      use(one.name, [&] {
        one.size = resizer_.resize(one.size, one.pixels);
        differences_.add(one.name, one.answer, comparison_.by_file(one.size, one.pixels));
      });
    }
  }

  void use(const std::string& name, const std::function<void()>& work) {
    try {
      work();
    } catch (const Error&) {
      throw;
    } catch (const std::runtime_error& error) {
      ++num_unusable_;
      const auto log = [&] { logger_.warn("{}: {}", printable_line(name), error.what()); };
      progress_ ? progress_->log_above(log) : log();
    }
  }

  Images& images_;
  Comparison& comparison_;
  Resizer& resizer_;
  Logger& logger_;
  Differences differences_;
  int64_t num_unusable_ = 0;
  std::optional<SampleProgress> progress_;
};

}  // namespace

ExitCode verify_export(const std::vector<std::string>& args) {
  const auto arguments = parse_verify_arguments(args);
  install_stop_handlers();
  const auto logger = make_console_logger();
  const session::NetworkFile file(arguments.checkpoint);
  if (!file.has_experiment()) {
    throw UsageError(fmt::format("{}: it holds weights without their experiment; give a checkpoint", file.path()));
  }
  const session::RankContext context(load_experiment(arguments, file), {.num_threads = world::default_compute_threads().count}, logger);
  const auto& experiment = context.experiment();
  inference::Predictor predictor(session::description_of(experiment, file), file.tree(), arguments.request.averaged, context.placement(),
                                 /*images_at_once=*/1);
  const auto network = exported::open_network(arguments.file, arguments.runtime);
  if (const auto note = note_on_origin(*network, arguments.file, file.path()); !note.empty()) logger->warn("{}", note);
  Comparison comparison(predictor, *network, arguments.file.string());
  Resizer resizer(arguments.preprocess, inference::input_of_image_files(predictor.samples(), experiment.dataset.validation_transforms));
  const auto images = open_images(arguments, experiment, file, *logger);
  const auto indices = data::evenly_spaced(images->size(), arguments.limit.value_or(images->size()));
  Run run(*images, comparison, resizer, *logger);
  run.compare(indices);
  if (run.num_unusable() == static_cast<int64_t>(indices.size())) throw DataError("no image could be compared, as named above");
  const auto difference = run.differences().result();
  print_difference(arguments, difference, network->engine(), file.path(), predictor.class_names());
  if (!(difference.largest <= arguments.tolerance)) {
    throw Error(fmt::format("{}: a probability differs by {:.2e}, more than --tolerance {:g}, from that of {}; {}", arguments.file.string(),
                            difference.largest, arguments.tolerance, file.path(),
                            arguments.preprocess == "none" ? "export it again from this checkpoint"
                                                           : "this is what --preprocess " + arguments.preprocess + " costs"));
  }
  if (run.num_unusable() == 0) return ExitCode::kDone;
  throw DataError(fmt::format("{} cannot be used, as named above; all others were compared", counted(run.num_unusable(), "image")));
}

}  // namespace trainer::commands
