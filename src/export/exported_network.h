#pragma once
// A network in a file written by `trainer export` or another program.

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace trainer::exported {

// The description that trainer export writes into the file of a network (docs/evaluation.md).
struct FileDescription {
  std::string checkpoint_sha256;  // empty if another program has written the file; then the other members are not set
  bool takes_images = false;
  bool gives_answers = false;
};
// `json`: the content of trainer.json in a TorchScript file, or of the metadata `trainer` in an ONNX file; may be empty. `source`: the
// file, for messages. Throws UsageError if trainer export has written the description, but without the network's input and outputs.
FileDescription read_description(const std::string& json, const std::string& source);

class ExportedNetwork {
 public:
  virtual ~ExportedNetwork() = default;
  // `input`: contiguous, on the CPU. Returns [batch, outputs] in a floating-point type, on the CPU. Throws Error that names the file.
  virtual torch::Tensor run(const torch::Tensor& input) = 0;

  // The shape of the input, which is a batch; -1 for a dimension of any size. Empty if the file does not state it.
  std::vector<int64_t> input_shape = {};
  // uint8 for pixels of images [batch, height, width, channels]; otherwise the type of the network's input [batch, channels, height,
  // width].
  torch::ScalarType input_dtype = torch::kFloat32;
  // Whether run() returns answers (probabilities, or numbers in the unit of the targets) instead of logits.
  bool gives_answers = false;
  std::string checkpoint_sha256 = {};  // of FileDescription
  std::string engine = {};             // the library that runs the network: "ONNX Runtime 1.20.1"
};

// Opens a TorchScript file, or with onnx::open_network() an ONNX file, to run on the CPU with LibTorch's number of threads. Throws
// UsageError if the file cannot be opened, has a different format, or does not contain a network with one input; before its code runs, if
// it is TorchScript and its description does not name the checkpoint with this checksum. `checkpoint_sha256`: empty for any.
std::unique_ptr<ExportedNetwork> open_network(const std::filesystem::path& file, const std::filesystem::path& runtime,
                                              const std::string& checkpoint_sha256);

}  // namespace trainer::exported
