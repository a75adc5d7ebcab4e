#include "export/onnx/model.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/text.h"
#include "trainer/error.h"

namespace trainer::onnx {
namespace {

using protobuf::append_bytes;
using protobuf::append_float;
using protobuf::append_int64;

// The field numbers are those of onnx.proto.

std::string to_message(const Branch& branch);

std::string to_message(const std::string& name, const Attribute& attribute) {
  enum Type { kFloat = 1, kInt = 2, kGraph = 5, kInts = 7 };
  constexpr unsigned kType = 20;
  std::string out;
  append_bytes(out, 1, name);
  if (const auto* number = std::get_if<float>(&attribute)) {
    append_float(out, 2, *number);
    append_int64(out, kType, kFloat);
  } else if (const auto* integer = std::get_if<int64_t>(&attribute)) {
    append_int64(out, 3, *integer);
    append_int64(out, kType, kInt);
  } else if (const auto* branch = std::get_if<std::shared_ptr<const Branch>>(&attribute)) {
    append_bytes(out, 6, to_message(**branch));
    append_int64(out, kType, kGraph);
  } else {
    for (const auto element : std::get<std::vector<int64_t>>(attribute)) append_int64(out, 8, element);
    append_int64(out, kType, kInts);
  }
  return out;
}

std::string to_message(const Node& node) {
  std::string out;
  for (const auto& input : node.inputs) append_bytes(out, 1, input);
  append_bytes(out, 2, node.output);
  append_bytes(out, 3, node.output);
  append_bytes(out, 4, node.op);
  for (const auto& [name, attribute] : node.attributes) append_bytes(out, 5, to_message(name, attribute));
  return out;
}

std::string to_message(const Tensor& tensor) {
  std::string out;
  for (const auto size : tensor.shape) append_int64(out, 1, size);
  append_int64(out, 2, static_cast<int64_t>(tensor.type));
  append_bytes(out, 8, tensor.name);
  append_bytes(out, 9, tensor.bytes);
  return out;
}

std::string to_message(const Value& value) {
  std::string shape, tensor, type, out;
  for (const auto& size : value.shape) {
    std::string dimension;
    if (const auto* name = std::get_if<std::string>(&size)) {
      if (!name->empty()) append_bytes(dimension, 2, *name);
    } else {
      append_int64(dimension, 1, std::get<int64_t>(size));
    }
    append_bytes(shape, 1, dimension);
  }
  append_int64(tensor, 1, static_cast<int64_t>(value.type));
  append_bytes(tensor, 2, shape);
  append_bytes(type, 1, tensor);
  append_bytes(out, 1, value.name);
  append_bytes(out, 2, type);
  return out;
}

std::string to_message(const Branch& branch) {
  std::string out;
  for (const auto& node : branch.nodes) append_bytes(out, 1, to_message(node));
  append_bytes(out, 2, "branch");
  append_bytes(out, 12, to_message(Value{branch.output, {"", "", "", ""}}));
  return out;
}

}  // namespace

std::string to_file(const Model& model) {
  constexpr int64_t kVersionOfFormat = 8;  // of ONNX 1.12, which introduced kOperatorSet
  constexpr uint64_t kMostBytes = uint64_t{1} << 31;
  std::string graph, operators, out;
  for (const auto& node : model.nodes) append_bytes(graph, 1, to_message(node));
  append_bytes(graph, 2, "network");
  for (const auto& tensor : model.constants) append_bytes(graph, 5, to_message(tensor));
  append_bytes(graph, 11, to_message(model.input));
  for (const auto& output : model.outputs) append_bytes(graph, 12, to_message(output));
  append_bytes(operators, 1, "");
  append_int64(operators, 2, kOperatorSet);
  append_int64(out, 1, kVersionOfFormat);
  append_bytes(out, 2, "trainer");
  append_bytes(out, 7, graph);
  append_bytes(out, 8, operators);
  for (const auto& [key, value] : model.metadata) {
    std::string entry;
    append_bytes(entry, 1, key);
    append_bytes(entry, 2, value);
    append_bytes(out, 14, entry);
  }
  if (out.size() < kMostBytes) return out;
  throw Error(
      fmt::format("the network has {}, but a .onnx file can have at most 2 GiB; use --format torchscript", format_bytes(out.size())));
}

}  // namespace trainer::onnx
