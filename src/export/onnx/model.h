#pragma once
// A network in the terms of ONNX (https://onnx.ai), and its file.

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace trainer::onnx {

// Version 17 of the operators has all that these networks need but Gelu, and tools since 2022 read it.
inline constexpr int64_t kOperatorSet = 17;

enum class ElementType : int64_t { kFloat = 1, kInt64 = 7 };  // ONNX's numbers

// A constant: a parameter of the network or an argument of an operator.
struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  ElementType type = ElementType::kFloat;
  std::string bytes;  // the elements, little-endian
};

using Attribute = std::variant<int64_t, float, std::vector<int64_t>>;

struct Node {
  std::string op;
  std::vector<std::string> inputs;
  std::string output;
  std::map<std::string, Attribute> attributes = {};
};

// Of float32. The first dimension of input and output is the batch, of any size.
struct Value {
  std::string name;
  std::vector<int64_t> sample_shape;
};

struct Model {
  std::vector<Node> nodes;  // each after those whose outputs it reads
  std::vector<Tensor> constants;
  Value input, output;
  std::map<std::string, std::string> metadata;
};

// The bytes of a .onnx file. Throws Error if they are more than the 2 GiB that protobuf allows.
std::string to_file(const Model& model);

}  // namespace trainer::onnx
