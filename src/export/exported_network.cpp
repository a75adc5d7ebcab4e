#include "export/exported_network.h"

#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <torch/script.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "export/onnx/runtime.h"
#include "export/torchscript.h"
#include "trainer/error.h"

namespace trainer::exported {
namespace {

namespace fs = std::filesystem;

// The first line of the message, without LibTorch's backtrace.
std::string reason_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return printable_line(text.substr(0, text.find('\n')));
}

// Returns the description in a TorchScript file, without running its code. Throws UsageError if the file is TorchScript of another
// checkpoint; `checkpoint_sha256`: empty for any.
FileDescription description_of_script(const fs::path& file, const std::string& checkpoint_sha256) {
  caffe2::serialize::PyTorchStreamReader reader(file.string());
  const auto name = std::string("extra/") + kTorchscriptDescription;
  FileDescription description;
  if (reader.hasRecord(name)) {
    const auto [data, size] = reader.getRecord(name);
    description = read_description({static_cast<const char*>(data.get()), size}, file.string());
  }
  if (checkpoint_sha256.empty() || description.checkpoint_sha256 == checkpoint_sha256 || !reader.hasRecord("constants.pkl"))
    return description;
  throw UsageError(fmt::format(
      "{}: its code would run, which can read and overwrite your files, but its description does not name the checkpoint; give the "
      "checkpoint from which it was exported, or, if you trust the file, add --trust",
      file.string()));
}

class ScriptNetwork : public ExportedNetwork {
 public:
  ScriptNetwork(const fs::path& file, const std::string& wanted_sha256) : file_(file) {
    engine = "LibTorch " TORCH_VERSION;
    FileDescription description;
    try {
      description = description_of_script(file, wanted_sha256);
      module_ = torch::jit::load(file.string(), torch::kCPU);
      module_.eval();
    } catch (const UsageError&) {
      throw;
    } catch (const std::exception& error) {
      throw UsageError(
          fmt::format("{}: LibTorch cannot read it as TorchScript: {}; give a file that trainer export or torch.jit.save has written",
                      file.string(), reason_of(error)));
    }
    const auto forward = module_.find_method("forward");
    const auto num_inputs = forward ? forward->num_inputs() - 1 : 0;
    if (num_inputs != 1) {
      throw UsageError(
          fmt::format("{}: the network has {} inputs; give a file with a network that has one input", file.string(), num_inputs));
    }
    for (const auto& parameter : module_.parameters()) input_dtype = parameter.scalar_type();
    if (description.takes_images) input_dtype = torch::kUInt8;
    gives_answers = description.gives_answers;
    checkpoint_sha256 = description.checkpoint_sha256;
  }

  torch::Tensor run(const torch::Tensor& input) override {
    const torch::NoGradGuard no_grad;
    torch::IValue output;
    try {
      output = module_.forward({input});
    } catch (const std::exception& error) {
      throw Error(fmt::format("{}: {} cannot run this network: {}", file_.string(), engine, reason_of(error)));
    }
    if (output.isTuple() && !output.toTupleRef().elements().empty()) {
      // Networks of trainer export return the answers after the logits.
      const auto& elements = output.toTupleRef().elements();
      const auto chosen = gives_answers ? elements.back() : elements[0];
      output = chosen;
    }
    if (output.isTensor()) return output.toTensor();
    throw Error(fmt::format(
        "{}: forward() must return a tensor, or a tuple that begins with one; give a file written by trainer export, or change forward()",
        file_.string()));
  }

 private:
  fs::path file_;
  torch::jit::Module module_;
};

}  // namespace

FileDescription read_description(const std::string& json, const std::string& source) {
  const auto tree = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!tree.is_object() || !tree.contains("trainer")) return {};
  try {
    const auto outputs = tree.at("outputs").get<std::vector<std::string>>();
    return {.checkpoint_sha256 = tree.at("checkpoint_sha256"),
            .takes_images = tree.at("input") == "images",
            .gives_answers = are_answers(outputs.at(outputs.size() - 1))};
  } catch (const std::exception&) {  // thrown by nlohmann-json, or because of an empty list
    throw UsageError(fmt::format("{}: its description does not state its input and outputs; export the network again", source));
  }
}

std::unique_ptr<ExportedNetwork> open_network(const fs::path& file, const fs::path& runtime, const std::string& checkpoint_sha256) {
  std::array<char, 2> begin{};
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw UsageError(fmt::format("{}: {}; give a file that trainer export has written", file.string(), std::strerror(errno)));
  // TorchScript files are zip files; ONNX files begin with a field number.
  stream.read(begin.data(), begin.size());
  if (stream.gcount() == 0) {
    throw UsageError(fmt::format("{}: it is {}; give a file that trainer export has written", file.string(),
                                 fs::is_directory(file) ? "a folder" : "empty"));
  }
  if (begin[0] == 'P' && begin[1] == 'K') return std::make_unique<ScriptNetwork>(file, checkpoint_sha256);
  return onnx::open_network(file, runtime, torch::get_num_threads());
}

}  // namespace trainer::exported
