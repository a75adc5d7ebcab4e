#pragma once
// The ONNX representation of a network (https://onnx.ai), and its file.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace trainer::onnx {

// Tools since 2022 support version 17, which has all operators that these networks need except Gelu.
inline constexpr int64_t kOperatorSet = 17;

enum class ElementType : int64_t { kFloat = 1, kUint8 = 2, kInt64 = 7, kFloat16 = 10, kFloat64 = 11 };  // ONNX's numbers

// A constant: a parameter or buffer of the network, or an argument of an operator.
struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  ElementType type = ElementType::kFloat;
  std::string bytes;  // the elements, little-endian
};

struct Branch;
using Attribute = std::variant<int64_t, float, std::vector<int64_t>, std::shared_ptr<const Branch>>;

struct Node {
  std::string op;
  std::vector<std::string> inputs;
  std::string output;
  std::map<std::string, Attribute> attributes = {};
};

// One of the two graphs of the operator If. It may use values of the enclosing graph.
struct Branch {
  std::vector<Node> nodes;
  std::string output;  // float32 of four dimensions
};

// An input or output.
struct Value {
  std::string name;
  std::vector<std::variant<int64_t, std::string>> shape;  // the name of a dimension, or "", means any size
  ElementType type = ElementType::kFloat;
};

struct Model {
  std::vector<Node> nodes;  // each node comes after the nodes whose outputs it reads
  std::vector<Tensor> constants;
  Value input;
  std::vector<Value> outputs;
  std::map<std::string, std::string> metadata;
};

// Returns the bytes of a .onnx file. Throws Error if it is larger than 2 GiB, the limit of protobuf.
std::string to_file(const Model& model);

}  // namespace trainer::onnx
