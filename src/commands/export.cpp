#include <nlohmann/json.hpp>

#include "base/file.h"
#include "checkpoint/pytorch_file.h"
#include "checkpoint/read_file.h"
#include "checkpoint/safetensors.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "commands/output.h"
#include "datasets/registry.h"
#include "engine/init_from.h"
#include "engine/torchscript.h"
#include "input/pipeline.h"
#include "onnx/convert.h"
#include "session/build.h"
#include "session/registries.h"
#include "state/module.h"
#include "state/view.h"

namespace trainer::commands {
namespace {

config::Experiment read_experiment(const state::View& file, const std::string& source) {
  return config::load_text(file.at("config").text(), source + ": config",
                           {"runtime.device=cpu", "runtime.channels_last=false", "amp.enabled=false", "distributed.sync_batch_norm=false",
                            "model.init_from=\"\""},
                           session::all_registries());
}

state::Tree read_weights(const state::View& file, bool ema) {
  const auto from = file.at(ema ? "ema" : "model");
  if (from.is_none()) from.fail("holds no averaged parameters; train with training.ema, or omit --ema");
  state::Dict weights;
  for (const auto& key : from.keys()) {
    if (key != state::Key("n_averaged")) weights.add(key, from.at(key).tensor());
  }
  return weights;
}

std::string to_onnx(models::Model& model, const std::vector<int64_t>& sample_shape, const std::vector<std::string>& class_names) {
  auto network = onnx::convert(engine::trace_network(model, sample_shape), sample_shape);
  if (!class_names.empty()) network.metadata["class_names"] = nlohmann::json(class_names).dump();
  return onnx::to_file(network);
}

void write(const std::filesystem::path& output, const std::string& format, const config::Experiment& experiment, models::Model& model) {
  if (format == "state_dict") {
    checkpoint::save(output, state::state_of(model));
  } else if (format == "safetensors") {
    checkpoint::save_safetensors(output, {.tensors = state::state_of(model), .metadata = {{"format", "pt"}}});
  } else {
    const auto info = datasets::dataset_registry().make(experiment.dataset.component).info;
    const auto shape = input::Pipeline(experiment.dataset.validation_transforms, info, {}).output_shape();
    write_file_atomically(output, format == "onnx" ? to_onnx(model, shape, info.class_names) : engine::to_torchscript(model, shape));
  }
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
  const auto tree = checkpoint::read_any(source);
  const state::View file(tree, source);
  const auto experiment = read_experiment(file, source);
  auto placement = device::choose_placement(experiment.runtime, experiment.amp, {}, {}, {});
  // Only LibTorch's own operators can be traced.
  placement.convolution = config::ConvolutionChoice::kDirect;
  placement.fuse = false;
  const auto network = session::build_network(experiment, placement);
  engine::load_weights(read_weights(file, ema), source, *network.model);
  write(output, format, experiment, *network.model);
  print("{}: {} of {}, {}\n", output.string(), experiment.model.component.name, source, ema ? "averaged parameters" : "parameters");
  return ExitCode::kDone;
}

}  // namespace trainer::commands
