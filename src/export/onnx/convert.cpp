#include "export/onnx/convert.h"

#include <fmt/format.h>

#include <set>
#include <unordered_map>

#include "base/text.h"
#include "export/onnx/operators.h"
#include "trainer/error.h"

namespace trainer::onnx {
namespace {

std::string operator_name(const torch::jit::Node& node) { return node.kind().toQualString(); }

// Throws UsageError with all that cannot be converted.
void check_operators(const torch::jit::Graph& graph) {
  std::set<std::string> missing;
  for (const auto* node : graph.nodes()) {
    if (node->kind().is_aten() && !has_conversion(operator_name(*node))) missing.insert(operator_name(*node));
  }
  if (missing.empty()) return;
  throw UsageError(
      fmt::format("--format onnx: the network uses operators without a conversion: {}; export it as torchscript, or add them to "
                  "src/export/onnx/operators.cpp",
                  join(std::vector<std::string>(missing.begin(), missing.end()), ", ")));
}

}  // namespace

Model convert(const torch::jit::Module& traced, const std::vector<int64_t>& sample_shape) {
  const auto graph = traced.get_method("forward").graph();
  check_operators(*graph);
  Graph result;
  result.name(graph->inputs().at(1), "images");
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
      result.name(node->output(), result.add_constant(node->t(c10::attr::value)));
    } else if (node->kind().is_aten()) {
      convert_operator(*node, result);
    }
  }
  const auto* output = graph->outputs().at(0);
  auto& model = result.model();
  model.nodes.push_back({"Identity", {result.name_of(output)}, "logits"});
  model.input = {"images", sample_shape};
  auto shape = result.shape_of(output);
  shape.erase(shape.begin());
  model.output = {"logits", std::move(shape)};
  return std::move(model);
}

}  // namespace trainer::onnx
