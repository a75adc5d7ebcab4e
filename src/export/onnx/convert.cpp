#include "export/onnx/convert.h"

#include <fmt/format.h>

#include <set>
#include <unordered_map>

#include "base/text.h"
#include "export/onnx/operators.h"
#include "export/onnx/preprocessing.h"
#include "trainer/error.h"

namespace trainer::onnx {
namespace {

std::string operator_name(const torch::jit::Node& node) { return node.kind().toQualString(); }

// Throws UsageError that lists all operators without a conversion.
void check_operators(const torch::jit::Graph& graph) {
  std::set<std::string> missing;
  for (const auto* node : graph.nodes()) {
    if (node->kind().is_aten() && !has_conversion(operator_name(*node))) missing.insert(operator_name(*node));
  }
  if (missing.empty()) return;
  throw UsageError(
      fmt::format("--format onnx: the network uses operators that cannot be converted: {}; use --format torchscript, or register "
                  "conversions in the network's plug-in (trainer/onnx.h)",
                  join(std::vector<std::string>(missing.begin(), missing.end()), ", ")));
}

using Dimension = std::variant<int64_t, std::string>;

Dimension dimension_of(const std::optional<int64_t>& size, const char* name) { return size ? Dimension(*size) : Dimension(name); }

Value describe_input(const exported::Interface& interface, const std::vector<int64_t>& sample_shape) {
  Value input{.name = exported::name_of_input(interface), .shape = {dimension_of(interface.batch_size, "batch")}};
  if (!interface.preprocessing) {
    input.shape.insert(input.shape.end(), sample_shape.begin(), sample_shape.end());
    return input;
  }
  const auto& size = interface.image_size;
  input.type = ElementType::kUint8;
  input.shape.push_back(size ? Dimension(size->height) : Dimension("height"));
  input.shape.push_back(size ? Dimension(size->width) : Dimension("width"));
  input.shape.emplace_back(interface.preprocessing->channels);
  return input;
}

std::string cast(Graph& graph, const std::string& value, ElementType type) {
  return graph.add_node("Cast", {value}, {{"to", static_cast<int64_t>(type)}});
}

// `shape`: [batch, ...] of the logits.
void add_outputs(Graph& graph, std::string logits, const std::vector<int64_t>& shape, const exported::Interface& interface) {
  auto& model = graph.model();
  const auto add = [&](const char* name, const char* op, const std::vector<std::string>& inputs, ElementType type = ElementType::kFloat) {
    model.nodes.push_back({op, inputs, name});
    model.outputs.push_back({name, {dimension_of(interface.batch_size, "batch")}});
    model.outputs.back().shape.insert(model.outputs.back().shape.end(), shape.begin() + 1, shape.end());
    model.outputs.back().type = type;
  };
  if (interface.is_half) logits = cast(graph, logits, ElementType::kFloat);
  if (interface.outputs != exported::Outputs::kAnswers) add("logits", "Identity", {logits});
  if (interface.outputs == exported::Outputs::kLogits) return;
  using Kind = exported::Answers::Kind;
  const auto& answers = interface.answers;
  // The numbers have the type of the cast logits, whatever that of the network is.
  const auto combine = [&](const char* op, const std::vector<double>& numbers, torch::ScalarType type) {
    logits = graph.add_node(op, {logits, graph.add_constant(torch::tensor(numbers, type), type)});
  };
  auto type = ElementType::kFloat;
  if (answers.kind == Kind::kSoftmax && answers.temperature != 1) combine("Div", {answers.temperature}, torch::kFloat32);
  if (!answers.deviation.empty()) {
    type = ElementType::kFloat64;
    logits = cast(graph, logits, type);
    combine("Mul", answers.deviation, torch::kFloat64);
    combine("Add", answers.mean, torch::kFloat64);
  }
  // By default, a softmax is along the last axis, which is that of the classes.
  const auto* const op = answers.kind == Kind::kSoftmax ? "Softmax" : answers.kind == Kind::kSigmoid ? "Sigmoid" : "Identity";
  add(exported::name_of_answers(interface), op, {logits}, type);
}

}  // namespace

Model convert(const torch::jit::Module& traced, const std::vector<int64_t>& sample_shape, const exported::Interface& interface) {
  const auto graph = traced.get_method("forward").graph();
  check_operators(*graph);
  Graph result;
  result.set_batch_size(interface.batch_size);
  auto& model = result.model();
  model.input = describe_input(interface, sample_shape);
  std::string images = model.input.name;
  if (interface.preprocessing) {
    model.nodes.push_back({"Identity", {add_preprocessing(interface, images, result)}, "images"});
    images = "images";
  }
  if (interface.is_half) images = cast(result, images, ElementType::kFloat16);
  result.set_half(interface.is_half);
  result.name(graph->inputs().at(1), images);
  std::unordered_map<const torch::jit::Value*, torch::jit::Module> modules = {{graph->inputs().at(0), traced}};
  std::unordered_map<const torch::jit::Value*, std::string> paths = {{graph->inputs().at(0), ""}};
  for (auto* node : graph->nodes()) {
    if (node->kind() == c10::prim::GetAttr) {
      const auto attribute = node->s(c10::attr::name);
      const auto path = paths.at(node->input()) + attribute;
      const auto value = modules.at(node->input()).attr(attribute);
      if (value.isModule()) {
        modules.emplace(node->output(), value.toModule());
        paths.emplace(node->output(), path + ".");
      } else {
        result.add_parameter(node->output(), path, value.toTensor());
      }
    } else if (node->kind() == c10::prim::Constant && node->output()->type()->isSubtypeOf(*c10::TensorType::get())) {
      const auto value = node->t(c10::attr::value);
      result.name(node->output(), result.add_constant(value.is_floating_point() ? value.to(torch::kFloat) : value));
    } else if (node->kind() == c10::prim::ListUnpack) {
      convert_list_unpack(*node, result);
    } else if (node->kind().is_aten()) {
      convert_operator(*node, result);
    }
  }
  result.set_half(false);
  const auto* output = graph->outputs().at(0);
  add_outputs(result, result.name_of(output), result.shape_of(output), interface);
  return std::move(model);
}

}  // namespace trainer::onnx
