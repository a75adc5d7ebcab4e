#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/text.h"
#include "checkpoint/pytorch_file.h"
#include "checkpoint/safetensors.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "commands/run_end.h"
#include "data/pipeline.h"
#include "export/onnx/convert.h"
#include "export/torchscript.h"
#include "run/session/build.h"
#include "run/session/network_file.h"
#include "run/session/registries.h"
#include "trainer/state.h"

namespace trainer::commands {
namespace {

// As the exported file is computed: by the plain operators of one process, on any device.
config::Experiment load_experiment(const session::NetworkFile& file) {
  auto experiment = file.load_experiment({}, session::all_registries());
  experiment.runtime.device = device::DeviceChoice::kCpu;
  experiment.runtime.channels_last.value = false;
  experiment.amp.enabled.value = false;
  experiment.distributed.sync_batch_norm = false;
  return experiment;
}

std::string to_onnx(models::Model& model, const std::vector<int64_t>& sample_shape, const std::vector<std::string>& class_names) {
  auto network = onnx::convert(engine::trace_network(model, sample_shape), sample_shape);
  if (!class_names.empty()) network.metadata["class_names"] = nlohmann::json(class_names).dump();
  return onnx::to_file(network);
}

// What a file's extension says about its format.
struct Extension {
  const char* extension;
  std::vector<std::string> formats;  // the possible ones
};

// `format`: empty if none was given.
std::string choose_format(const std::string& format, const std::filesystem::path& output) {
  static const std::array<Extension, 4> kExtensions = {{{".onnx", {"onnx"}},
                                                        {".safetensors", {"safetensors"}},
                                                        {".pt", {"state_dict", "torchscript"}},
                                                        {".pth", {"state_dict", "torchscript"}}}};
  const auto extension = output.extension().string();
  const auto* found = std::ranges::find(kExtensions, extension, &Extension::extension);
  const auto formats = found == kExtensions.end() ? std::vector<std::string>{} : found->formats;
  if (format.empty() && formats.size() == 1) return formats.front();
  if (format.empty()) {
    throw UsageError(fmt::format("--output {}: {} does not tell the format; add --format {}", output.string(),
                                 extension.empty() ? "a name without extension" : extension,
                                 formats.empty() ? "state_dict, safetensors, torchscript or onnx" : join(formats, " or ")));
  }
  if (formats.empty() || std::ranges::find(formats, format) != formats.end()) return format;
  throw UsageError(fmt::format("--format {} does not fit --output {}: {} is for {}; change one of them", format, output.string(), extension,
                               join(formats, " or ")));
}

// Returns what a user has to know of the file besides; empty: nothing.
std::string write(const std::filesystem::path& output, const std::string& format, config::Experiment& experiment,
                  const session::NetworkFile& file, models::Model& model) {
  std::string content, note;
  if (format == "onnx" || format == "torchscript") {
    const auto info = session::samples_of(experiment, file);
    const auto shape = data::Pipeline(experiment.dataset.validation_transforms, info, {}).output_shape();
    content = format == "onnx" ? to_onnx(model, shape, info.class_names)
                               : engine::to_torchscript(model, shape, session::describe_network(experiment, file));
    if (format == "onnx") note = fmt::format("\nThe network takes samples of shape {}, in batches of any size.", fmt::join(shape, "x"));
  }
  OutputFile target(output);
  if (format == "state_dict") {
    checkpoint::write_pytorch_file(state::state_of(model), output.stem().string(), target);
  } else if (format == "safetensors") {
    checkpoint::write_safetensors(
        {.tensors = state::state_of(model), .metadata = {{"format", "pt"}, {"trainer", session::describe_network(experiment, file)}}},
        target);
  } else {
    target.write(content);
  }
  target.commit();
  return note;
}

}  // namespace

ExitCode export_model(const std::vector<std::string>& args) {
  std::string source, format;
  std::filesystem::path output;
  bool ema = false;
  CLI::App app("Writes the network of a checkpoint for other programs.", "trainer export");
  app.add_option("--checkpoint", source, "the checkpoint, or the folder of a run, whose best.pt is taken")
      ->required()
      ->type_name("FILE|DIR");
  app.add_option("--format", format,
                 "state_dict (torch.load), safetensors, torchscript (torch.jit.load), or onnx (ONNX Runtime and others); default: by the "
                 "extension of --output, .onnx or .safetensors")
      ->check(CLI::IsMember({"state_dict", "safetensors", "torchscript", "onnx"}));
  app.add_option("--output", output, "where to write it")->required()->type_name("FILE");
  app.add_flag("--ema", ema, "export the averaged parameters");
  add_plugin_option(app);
  cli::parse(app, args);

  format = choose_format(format, output);
  const session::NetworkFile file(source);
  cli::refuse_to_overwrite(file.path(), output);
  refuse_file_of_run(output);
  auto experiment = load_experiment(file);
  auto placement = device::choose_placement(session::placement_options(experiment), {}, {});
  // Only LibTorch's own operators can be traced.
  placement.convolution = device::ConvolutionChoice::kDirect;
  placement.fuse = false;
  const auto network = session::build_network(experiment, placement);
  file.load_weights(ema, *network.model);
  const auto note = write(output, format, experiment, file, *network.model);
  print_written(output, "{} of {}, {}{}", experiment.model.component.name, file.path(), ema ? "averaged parameters" : "parameters", note);
  return ExitCode::kDone;
}

}  // namespace trainer::commands
