#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/text.h"
#include "checkpoint/pytorch_file.h"
#include "checkpoint/safetensors.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "commands/run_end.h"
#include "data/pipeline.h"
#include "export/interface.h"
#include "export/onnx/convert.h"
#include "export/torchscript.h"
#include "inference/predictor.h"
#include "run/network/network_file.h"
#include "run/recipe/build.h"
#include "run/recipe/registries.h"
#include "trainer/state.h"

namespace trainer::commands {
namespace {

// The experiment, changed to one process on the CPU in float32: a network for other settings has operators that an exported file cannot
// hold, or that do not run on every device.
config::Experiment load_experiment(const network::NetworkFile& file) {
  auto experiment = file.load_experiment({}, recipe::all_registries());
  experiment.runtime.device = device::DeviceChoice::kCpu;
  experiment.runtime.channels_last.value = false;
  experiment.amp.enabled.value = false;
  experiment.distributed.sync_batch_norm = false;
  return experiment;
}

// `format`: empty if none was given.
std::string choose_format(const std::string& format, const std::filesystem::path& output) {
  std::map<std::string, std::vector<std::string>> formats_of = {{".onnx", {"onnx"}},
                                                                {".safetensors", {"safetensors"}},
                                                                {".pt", {"state_dict", "torchscript"}},
                                                                {".pth", {"state_dict", "torchscript"}}};
  const auto extension = output.extension().string();
  const auto& formats = formats_of[extension];
  if (format.empty() && formats.size() == 1) return formats.front();
  if (format.empty()) {
    throw UsageError(fmt::format("--output {}: {} does not determine the format; add --format {}", output.string(),
                                 extension.empty() ? "a name without extension" : extension,
                                 formats.empty() ? "state_dict, safetensors, torchscript or onnx" : join(formats, " or ")));
  }
  if (formats.empty() || std::ranges::find(formats, format) != formats.end()) return format;
  throw UsageError(fmt::format("--format {} does not fit --output {}: {} is for {}; change one of them", format, output.string(), extension,
                               join(formats, " or ")));
}

struct ExportArguments {
  std::string source, format, input, outputs;
  std::filesystem::path output, license;
  std::optional<int64_t> batch_size;
  std::string image_size;
  bool half = false;
  bool ema = false;
};

ExportArguments parse_export_arguments(const std::vector<std::string>& args) {
  ExportArguments arguments;
  CLI::App app("Writes the network of a checkpoint for other programs.", "trainer export");
  cli::add_checkpoint(app, arguments.source);
  app.add_option("--format", arguments.format,
                 "state_dict (torch.load), safetensors, torchscript (torch.jit.load), or onnx (ONNX Runtime and others); default: by the "
                 "extension of --output, .onnx or .safetensors")
      ->check(CLI::IsMember({"state_dict", "safetensors", "torchscript", "onnx"}));
  app.add_option("--output", arguments.output, "the file to write")->required()->type_name("FILE");
  app.add_option("--input", arguments.input,
                 "the input of an onnx or torchscript file: images (uint8 pixels of images of any size; the exported network resizes and "
                 "normalizes them like dataset.validation_transforms) or tensor (the network's input); default: images, if the network was "
                 "trained on images")
      ->check(CLI::IsMember({"images", "tensor"}));
  app.add_option(
         "--outputs", arguments.outputs,
         "the output of an onnx or torchscript file: probabilities (for a regression: values, the predicted numbers), logits, or both; "
         "default: probabilities with --input images, logits with --input tensor, values for a regression")
      ->check(CLI::IsMember({"probabilities", "values", "logits", "both"}));
  app.add_flag("--fp16", arguments.half, "onnx: store and compute the network in float16; input and outputs keep their types");
  app.add_option("--batch-size", arguments.batch_size, "onnx: accept only batches of this size; default: any size")
      ->check(CLI::PositiveNumber);
  app.add_option("--image-size", arguments.image_size, "onnx with --input images: accept only images of this size; default: any size")
      ->type_name("HEIGHTxWIDTH");
  app.add_option("--license", arguments.license, "a text file to store in an onnx or safetensors file")->type_name("FILE");
  app.add_flag("--ema", arguments.ema, "export the averaged parameters");
  add_plugin_option(app);
  cli::parse(app, args);
  arguments.format = choose_format(arguments.format, arguments.output);
  const auto refuse_for_others = [&](bool is_given, const char* option, const std::vector<std::string>& formats) {
    if (!is_given || std::ranges::find(formats, arguments.format) != formats.end()) return;
    throw UsageError(fmt::format("{} is for --format {}, not {}; remove it", option, join(formats, " or "), arguments.format));
  };
  refuse_for_others(!arguments.input.empty(), "--input", {"onnx", "torchscript"});
  refuse_for_others(!arguments.outputs.empty(), "--outputs", {"onnx", "torchscript"});
  refuse_for_others(arguments.half, "--fp16", {"onnx"});
  refuse_for_others(arguments.batch_size.has_value(), "--batch-size", {"onnx"});
  refuse_for_others(!arguments.image_size.empty(), "--image-size", {"onnx"});
  refuse_for_others(!arguments.license.empty(), "--license", {"onnx", "safetensors"});
  return arguments;
}

exported::Interface::Size parse_image_size(const std::string& text) {
  exported::Interface::Size size;
  const auto x = std::min(text.find('x'), text.size());
  size.height = parse_number<int64_t>(text.substr(0, x)).value_or(0);
  size.width = parse_number<int64_t>(text.substr(std::min(x + 1, text.size()))).value_or(0);
  if (size.height < 1 || size.width < 1) {
    throw UsageError(fmt::format("--image-size {}: give height and width in pixels, such as 480x640", text));
  }
  return size;
}

exported::Answers answers_of(const inference::OperatingPoint& point) {
  using Kind = exported::Answers::Kind;
  const auto kind = point.kind == inference::AnswerKind::kClass     ? Kind::kSoftmax
                    : point.kind == inference::AnswerKind::kClasses ? Kind::kSigmoid
                                                                    : Kind::kNumbers;
  return {.kind = kind, .temperature = point.temperature, .deviation = point.deviation, .mean = point.mean};
}

exported::Outputs outputs_of(const ExportArguments& arguments, const exported::Interface& interface, bool has_masks) {
  using exported::Outputs;
  const auto& given = arguments.outputs;
  if (has_masks && !given.empty() && given != "logits") {
    throw UsageError(
        fmt::format("--outputs {}: the network predicts masks, for which only logits can be exported; remove this option", given));
  }
  const std::string answers = exported::name_of_answers(interface);
  if (exported::are_answers(given) && given != answers) {
    throw UsageError(fmt::format("--outputs {}: the network computes {}; choose {}", given,
                                 answers == "values" ? "numbers" : "probabilities of classes", answers));
  }
  const bool has_answers = !has_masks && (interface.preprocessing || answers == "values");
  if (given.empty()) return has_answers ? Outputs::kAnswers : Outputs::kLogits;
  return given == "logits" ? Outputs::kLogits : given == "both" ? Outputs::kBoth : Outputs::kAnswers;
}

exported::Interface interface_of(const ExportArguments& arguments, const config::Experiment& experiment, const data::DatasetInfo& samples,
                                 const inference::OperatingPoint& point) {
  exported::Interface interface;
  interface.answers = answers_of(point);
  interface.is_half = arguments.half;
  interface.batch_size = arguments.batch_size;
  const bool has_values = samples.decoding.has_float_pixels();
  const bool can_be_images = samples.is_image && !has_values && (samples.shape.at(0) == 1 || samples.shape.at(0) == 3);
  if (has_values && arguments.input == "images") {
    throw UsageError(fmt::format(
        "--input images: this input has 8 bits per channel, but the network takes images of dataset.mode: {}; choose --input tensor",
        data::name_of(samples.decoding.mode)));
  }
  if (arguments.input == "images" && !can_be_images) {
    throw UsageError("--input images: the network was not trained on grey or RGB images; choose --input tensor");
  }
  if (arguments.input.empty() ? can_be_images : arguments.input == "images") {
    const auto input = inference::input_of_image_files(samples, experiment.dataset.validation_transforms);
    interface.preprocessing =
        exported::read_preprocessing(input.transforms, experiment.dataset.validation_transforms.size(), input.samples);
  }
  if (!arguments.image_size.empty()) {
    if (!interface.preprocessing) throw UsageError("--image-size is for --input images; remove it");
    interface.image_size = parse_image_size(arguments.image_size);
  }
  interface.outputs = outputs_of(arguments, interface, samples.has_masks);
  return interface;
}

// The lines of the command's output after the first.
std::string describe_interface(const exported::Interface& interface, const std::vector<int64_t>& sample_shape,
                               const data::DatasetInfo& samples, bool has_names) {
  using exported::Outputs;
  const auto batch = interface.batch_size ? std::to_string(*interface.batch_size) : "batch";
  std::string input;
  if (interface.preprocessing) {
    const auto& size = interface.image_size;
    input = fmt::format("uint8 [{}, {}, {}], {}", batch, size ? fmt::format("{}, {}", size->height, size->width) : "height, width",
                        interface.preprocessing->channels, interface.preprocessing->channels == 1 ? "grey" : "red green blue");
  } else {
    input = fmt::format("floating-point [{}, {}]", batch, fmt::join(sample_shape, ", "));
  }
  const std::string answers = exported::name_of_answers(interface);
  const auto outputs = interface.outputs == Outputs::kLogits    ? "logits"
                       : interface.outputs == Outputs::kAnswers ? answers
                                                                : "logits, " + answers;
  std::string text =
      fmt::format("\ninput {}{}\noutput {}", has_names ? exported::name_of_input(interface) + std::string(": ") : "", input, outputs);
  constexpr size_t kMostNames = 10;
  const auto& names = samples.output_names();
  if (!names.empty() && names.size() <= kMostNames) text += (samples.num_classes != 0 ? "\nclasses: " : "\nnumbers: ") + join(names, ", ");
  return text;
}

std::string read_license(const std::filesystem::path& file) {
  if (file.empty()) return "";
  auto text = read_file(file);
  if (!is_utf8(text)) throw UsageError(fmt::format("--license {}: the file is not text in UTF-8; save it as UTF-8", file.string()));
  return text;
}

// Returns further lines about the file for the user; may be empty.
std::string write(const ExportArguments& arguments, config::Experiment& experiment, const network::NetworkFile& file,
                  models::Model& model) {
  std::string content, note;
  const auto& format = arguments.format;
  const auto license = read_license(arguments.license);
  // A function, because a state_dict has no description, and the checksum of a large checkpoint takes a while.
  const auto describe = [&](const std::optional<exported::Interface>& interface) {
    return network::describe_network(experiment, file, arguments.ema, interface);
  };
  if (format == "onnx" || format == "torchscript") {
    const auto info = network::samples_of(experiment, file);
    const auto shape = data::Pipeline(experiment.dataset.validation_transforms, info, {}).output_shape();
    const auto interface =
        interface_of(arguments, experiment, info, inference::read_operating_point(file.tree(), file.path(), arguments.ema, info));
    note = describe_interface(interface, shape, info, format == "onnx");
    if (experiment.validation.tta != task::TestTimeAugmentation::kNone) {
      note += "\nthe exported network does not apply validation.tta: it computes one view of each image";
    }
    if (format == "onnx") {
      auto network = onnx::convert(exported::trace_network(model, shape), shape, interface);
      network.metadata["trainer"] = describe(interface);
      if (!info.class_names.empty()) network.metadata["class_names"] = nlohmann::json(info.class_names).dump();
      if (!license.empty()) network.metadata["license"] = license;
      content = onnx::to_file(network);
    } else {
      content = exported::to_torchscript(model, shape, describe(interface), interface);
    }
  }
  OutputFile target(arguments.output);
  if (format == "state_dict") {
    checkpoint::write_pytorch_file(state::state_of(model), target);
  } else if (format == "safetensors") {
    std::map<std::string, std::string> metadata = {{"format", "pt"}, {"trainer", describe({})}};
    if (!license.empty()) metadata["license"] = license;
    checkpoint::write_safetensors({.tensors = state::state_of(model), .metadata = std::move(metadata)}, target);
  } else {
    target.write(content);
  }
  target.commit();
  return note;
}

}  // namespace

ExitCode export_model(const std::vector<std::string>& args) {
  const auto arguments = parse_export_arguments(args);
  const network::NetworkFile file(arguments.source);
  refuse_to_overwrite(arguments.output, {file.path()});
  auto experiment = load_experiment(file);
  const auto logger = make_console_logger();
  for (const auto& key : experiment.ignored_keys) logger->warn("{}", key);
  auto placement = device::choose_placement(recipe::placement_options(experiment), {}, {});
  // Only LibTorch's own operators can be traced.
  placement.convolution = device::ConvolutionChoice::kDirect;
  placement.fuse = false;
  const auto network =
      recipe::build_network(experiment, placement, {}, [&](models::Model& model) { file.load_weights(arguments.ema, model); });
  const auto note = write(arguments, experiment, file, *network.model);
  print_written(arguments.output, "{} of {}{}{}", experiment.model.component.name, file.path(),
                arguments.ema ? ", averaged parameters" : "", note);
  return ExitCode::kDone;
}

}  // namespace trainer::commands
