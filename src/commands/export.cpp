#include <nlohmann/json.hpp>

#include "checkpoint/pytorch_file.h"
#include "checkpoint/safetensors.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "commands/file_of_run.h"
#include "commands/output.h"
#include "engine/torchscript.h"
#include "input/pipeline.h"
#include "onnx/convert.h"
#include "session/build.h"
#include "session/network_description.h"
#include "session/registries.h"
#include "state/module.h"

namespace trainer::commands {
namespace {

const std::vector<std::string> kOverrides = {"runtime.device=cpu", "runtime.channels_last=false", "amp.enabled=false",
                                             "distributed.sync_batch_norm=false"};

std::string to_onnx(models::Model& model, const std::vector<int64_t>& sample_shape, const std::vector<std::string>& class_names) {
  auto network = onnx::convert(engine::trace_network(model, sample_shape), sample_shape);
  if (!class_names.empty()) network.metadata["class_names"] = nlohmann::json(class_names).dump();
  return onnx::to_file(network);
}

void write(const std::filesystem::path& output, const std::string& format, config::Experiment& experiment, const session::NetworkFile& file,
           models::Model& model) {
  std::string content;
  if (format == "onnx" || format == "torchscript") {
    const auto info = session::samples_of(experiment, file);
    const auto shape = input::Pipeline(experiment.dataset.validation_transforms, info, {}).output_shape();
    content = format == "onnx" ? to_onnx(model, shape, info.class_names)
                               : engine::to_torchscript(model, shape, session::describe_network(experiment, file));
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
}

}  // namespace

ExitCode export_model(const std::vector<std::string>& args) {
  std::string source, format;
  std::filesystem::path output;
  bool ema = false;
  CLI::App app("Writes the network of a checkpoint for other programs.", "trainer export");
  app.add_option("--checkpoint", source, "the checkpoint")->required()->type_name("FILE");
  app.add_option("--format", format,
                 "state_dict (torch.load), safetensors, torchscript (torch.jit.load), or onnx (ONNX Runtime and others)")
      ->required()
      ->check(CLI::IsMember({"state_dict", "safetensors", "torchscript", "onnx"}));
  app.add_option("--output", output, "where to write it")->required()->type_name("FILE");
  app.add_flag("--ema", ema, "export the averaged parameters");
  cli::parse(app, args);

  cli::refuse_to_overwrite(source, output);
  refuse_file_of_run(output);
  const session::NetworkFile file(source);
  auto experiment = file.load_experiment(kOverrides, session::all_registries());
  auto placement = device::choose_placement(experiment.runtime, experiment.amp, {}, {}, {});
  // Only LibTorch's own operators can be traced.
  placement.convolution = config::ConvolutionChoice::kDirect;
  placement.fuse = false;
  const auto network = session::build_network(experiment, placement);
  file.load_weights(ema, *network.model);
  write(output, format, experiment, file, *network.model);
  print_written(output, "{} of {}, {}", experiment.model.component.name, source, ema ? "averaged parameters" : "parameters");
  return ExitCode::kDone;
}

}  // namespace trainer::commands
