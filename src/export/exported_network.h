#pragma once
// A network in a file that `trainer export`, or another program, has written.

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace trainer::exported {

// What trainer export says of a network in its file (docs/evaluation.md).
struct FileDescription {
  std::string checkpoint_sha256;  // empty: another program has written the file, and the other members are not set
  bool takes_images = false;
  bool gives_answers = false;
};
// `json`: the content of trainer.json, or of the metadata `trainer`; may be empty. `source`: the file, for messages. Throws UsageError if
// trainer export has written it, but does not say what the network takes and returns.
FileDescription read_description(const std::string& json, const std::string& source);

class ExportedNetwork {
 public:
  virtual ~ExportedNetwork() = default;

  // Of the one input, a batch: -1 where a dimension has any size; empty if the file does not tell.
  virtual const std::vector<int64_t>& input_shape() const = 0;
  // uint8: pixels of images [batch, height, width, channels]; otherwise the network's input [batch, channels, height, width].
  virtual torch::ScalarType input_dtype() const = 0;
  // Whether run() returns probabilities or numbers in the unit of the targets, not logits.
  virtual bool gives_answers() const = 0;
  // The checksum of the checkpoint that it was exported from; empty: another program has written the file.
  virtual const std::string& checkpoint_sha256() const = 0;
  // What runs it: "ONNX Runtime 1.20.1".
  virtual std::string engine() const = 0;
  // `input`: contiguous, on the CPU. Returns [batch, classes] in a floating type, on the CPU. Throws Error that names the file.
  virtual torch::Tensor run(const torch::Tensor& input) = 0;
};

// Opens a TorchScript file, or an ONNX file as onnx::open_network(), to run on the CPU with LibTorch's number of threads. Throws
// UsageError if the file cannot be opened, is no such file, or is not a network with one input.
std::unique_ptr<ExportedNetwork> open_network(const std::filesystem::path& file, const std::filesystem::path& runtime);

}  // namespace trainer::exported
