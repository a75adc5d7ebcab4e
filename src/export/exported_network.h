#pragma once
// A network in a file that `trainer export`, or another program, has written.

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace trainer::exported {

class ExportedNetwork {
 public:
  virtual ~ExportedNetwork() = default;

  // Of the one input, a batch: -1 where a dimension has any size; empty if the file does not tell.
  virtual const std::vector<int64_t>& input_shape() const = 0;
  // uint8: pixels of images [batch, height, width, channels]; otherwise the network's input [batch, channels, height, width].
  virtual torch::ScalarType input_dtype() const = 0;
  // Whether run() returns probabilities, not logits.
  virtual bool gives_probabilities() const = 0;
  // What trainer export says of the network (docs/evaluation.md), a JSON object; empty: another program wrote the file.
  virtual const std::string& description() const = 0;
  // What runs it: "ONNX Runtime 1.20.1".
  virtual std::string engine() const = 0;
  // `input`: contiguous, on the CPU. Returns the probabilities of a file that gives them and the logits, on the CPU. Throws Error that
  // names the file.
  virtual torch::Tensor run(const torch::Tensor& input) = 0;
};

// Opens a TorchScript file, or an ONNX file with onnx::load_runtime(runtime), to run on the CPU with LibTorch's number of threads. Throws
// UsageError if the file cannot be opened, is no such file, or is not a network with one input.
std::unique_ptr<ExportedNetwork> open_network(const std::filesystem::path& file, const std::filesystem::path& runtime);

}  // namespace trainer::exported
