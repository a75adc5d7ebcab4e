#include "export/onnx/operators.h"

#include <fmt/format.h>
#include <torch/csrc/jit/ir/constants.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "trainer/error.h"
#include "trainer/onnx.h"

namespace trainer::onnx {
namespace {

using Ints = std::vector<int64_t>;
using Names = std::vector<std::string>;
using Attributes = std::map<std::string, Attribute>;

// The arguments of a node, by position; for a conversion that was registered, also the graph.
class Arguments final : public OnnxOperator {
 public:
  Arguments(const torch::jit::Node& node, Graph& graph) : node_(node), graph_(graph) {}

  std::string tensor(size_t index) const override {
    if (!node_.input(index)->type()->isSubtypeOf(*c10::TensorType::get())) refuse("with a number instead of a tensor");
    return graph_.name_of(node_.input(index));
  }
  size_t size() const { return node_.inputs().size(); }
  bool is_none(size_t index) const { return node_.input(index)->mustBeNone(); }
  Ints result_shape() const { return graph_.shape_of(node_.output()); }
  Ints shape(size_t index) const override { return graph_.shape_of(node_.input(index)); }
  int64_t integer(size_t index) const override { return constant(index).toInt(); }
  bool boolean(size_t index) const { return constant(index).toBool(); }
  double number(size_t index) const override { return constant(index).toScalar().toDouble(); }
  // The tensors of a list.
  Names tensors(size_t index) const {
    Names names;
    for (const auto* element : node_.input(index)->node()->inputs()) names.push_back(graph_.name_of(element));
    return names;
  }
  bool is_parameter(size_t index) const { return node_.input(index)->node()->kind() == c10::prim::GetAttr; }
  bool is_tensor(size_t index) const { return node_.input(index)->type()->isSubtypeOf(*c10::TensorType::get()); }
  std::string text(size_t index) const { return constant(index).toStringRef(); }
  Ints integers(size_t index) const override { return integers(index, 1); }
  // The elements of a list; a single element is repeated to get `size` elements.
  Ints integers(size_t index, size_t size) const {
    Ints result;
    for (const auto* element : node_.input(index)->node()->inputs()) result.push_back(torch::jit::toIValue(element).value().toInt());
    if (result.size() == 1) result.resize(size, result.front());
    return result;
  }
  std::string add_node(const std::string& op, Names inputs, std::map<std::string, OnnxOperator::Attribute> attributes) override {
    Attributes converted;
    for (auto& [name, attribute] : attributes)
      std::visit([&, &key = name](auto& value) { converted.emplace(key, std::move(value)); }, attribute);
    return graph_.add_node(op.c_str(), std::move(inputs), std::move(converted));
  }
  std::string add_constant(const torch::Tensor& tensor) override { return graph_.add_constant(tensor); }
  [[noreturn]] void refuse(const std::string& form) const {
    throw UsageError(fmt::format("--format onnx: the network uses {} {}, which cannot be converted; use --format torchscript",
                                 node_.kind().toQualString(), form));
  }

 private:
  c10::IValue constant(size_t index) const {
    auto value = torch::jit::toIValue(node_.input(index));
    if (!value) refuse("with an argument that is not constant");
    return *value;
  }

  const torch::jit::Node& node_;
  Graph& graph_;
};

// LibTorch's padding is the same on both sides of each dimension; ONNX lists the padding at all beginnings, then at all ends.
Ints both_sides(const Ints& padding) {
  auto result = padding;
  result.insert(result.end(), padding.begin(), padding.end());
  return result;
}

std::string convolution(const Arguments& arguments, Graph& graph) {
  const auto weight_shape = arguments.shape(1);
  const auto rank = weight_shape.size() - 2;
  if (arguments.boolean(6)) arguments.refuse("transposed");
  Names inputs = {arguments.tensor(0), arguments.tensor(1)};
  if (!arguments.is_none(2)) inputs.push_back(arguments.tensor(2));
  return graph.add_node("Conv", std::move(inputs),
                        {{"strides", arguments.integers(3, rank)},
                         {"pads", both_sides(arguments.integers(4, rank))},
                         {"dilations", arguments.integers(5, rank)},
                         {"group", arguments.integer(8)},
                         {"kernel_shape", Ints(weight_shape.begin() + 2, weight_shape.end())}});
}

std::string batch_norm(const Arguments& arguments, Graph& graph) {
  Names inputs;
  for (const size_t index : {0, 1, 2, 3, 4}) {
    if (arguments.is_none(index)) arguments.refuse("without weight, bias or running statistics");
    inputs.push_back(arguments.tensor(index));
  }
  return graph.add_node("BatchNormalization", std::move(inputs), {{"epsilon", static_cast<float>(arguments.number(7))}});
}

std::string linear(const Arguments& arguments, Graph& graph) {
  Names inputs = {arguments.tensor(0), arguments.tensor(1)};
  if (arguments.shape(0).size() != 2) {
    const auto product = graph.add_node("MatMul", {inputs[0], graph.add_node("Transpose", {inputs[1]}, {{"perm", Ints{1, 0}}})});
    return arguments.is_none(2) ? product : graph.add_node("Add", {product, arguments.tensor(2)});
  }
  if (!arguments.is_none(2)) inputs.push_back(arguments.tensor(2));
  return graph.add_node("Gemm", std::move(inputs), {{"transB", int64_t{1}}});
}

// A traced torch::nn::Linear: bias + x · weight, where weight is a transposed parameter.
std::string addmm(const Arguments& arguments, Graph& graph) {
  return graph.add_node("Gemm", {arguments.tensor(1), arguments.tensor(2), arguments.tensor(0)},
                        {{"alpha", static_cast<float>(arguments.number(4))}, {"beta", static_cast<float>(arguments.number(3))}});
}

// Converts a dimension that may be counted from the end.
size_t dimension(int64_t number, size_t rank) { return static_cast<size_t>(number < 0 ? number + static_cast<int64_t>(rank) : number); }

std::string swap_dimensions(const Arguments& arguments, Graph& graph, int64_t first, int64_t second) {
  const auto rank = arguments.shape(0).size();
  Ints order(rank);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order.at(dimension(first, rank)), order.at(dimension(second, rank)));
  return graph.add_node("Transpose", {arguments.tensor(0)}, {{"perm", order}});
}

// Reshapes to the shape of the traced result; 0 stands for the input's first dimension, which is the batch.
std::string reshape(const Arguments& arguments, Graph& graph) {
  auto shape = arguments.result_shape();
  shape.at(0) = 0;
  return graph.add_node("Reshape", {arguments.tensor(0), graph.add_constant(torch::tensor(shape))});
}

std::string take(Graph& graph, const std::string& tensor, int64_t axis, int64_t index) {
  return graph.add_node("Gather", {tensor, graph.add_constant(torch::tensor(index))}, {{"axis", axis}});
}

std::string select(const Arguments& arguments, Graph& graph) {
  return take(graph, arguments.tensor(0), arguments.integer(1), arguments.integer(2));
}

std::string expand_as(const Arguments& arguments, Graph& graph) {
  if (!graph.batch_size()) return graph.add_node("Expand", {arguments.tensor(0), graph.add_node("Shape", {arguments.tensor(1)})});
  auto shape = arguments.shape(1);
  if (!arguments.is_parameter(1)) shape.at(0) = *graph.batch_size();
  return graph.add_node("Expand", {arguments.tensor(0), graph.add_constant(torch::tensor(shape))});
}

std::string layer_norm(const Arguments& arguments, Graph& graph) {
  if (arguments.is_none(2) || arguments.is_none(3)) arguments.refuse("without weight or bias");
  const auto num_dimensions = static_cast<int64_t>(arguments.integers(1).size());
  return graph.add_node("LayerNormalization", {arguments.tensor(0), arguments.tensor(2), arguments.tensor(3)},
                        {{"axis", -num_dimensions}, {"epsilon", static_cast<float>(arguments.number(4))}});
}

// softmax(q · kᵀ / √features) · v
std::string attention(const Arguments& arguments, Graph& graph) {
  if (!arguments.is_none(3) || arguments.number(4) != 0 || arguments.boolean(5)) arguments.refuse("with a mask or dropout");
  const auto shape = arguments.shape(0);
  if (shape.size() != 4) arguments.refuse("with tensors that do not have four dimensions");
  const auto scale = graph.add_constant(torch::tensor(static_cast<float>(1 / std::sqrt(static_cast<double>(shape.back())))));
  const auto keys = graph.add_node("Transpose", {arguments.tensor(1)}, {{"perm", Ints{0, 1, 3, 2}}});
  const auto products = graph.add_node("MatMul", {graph.add_node("Mul", {arguments.tensor(0), scale}), keys});
  return graph.add_node("MatMul", {graph.add_node("Softmax", {products}, {{"axis", int64_t{-1}}}), arguments.tensor(2)});
}

std::string mean(const Arguments& arguments, Graph& graph) {
  if (arguments.size() != 4 || arguments.is_none(1) || !arguments.is_none(3))
    arguments.refuse("over all dimensions or with another result type");
  return graph.add_node("ReduceMean", {arguments.tensor(0)},
                        {{"axes", arguments.integers(1)}, {"keepdims", int64_t{arguments.boolean(2)}}});
}

std::string dropout(const Arguments& arguments, Graph& graph) {
  if (arguments.boolean(2)) arguments.refuse("in training");
  return graph.add_node("Identity", {arguments.tensor(0)});
}

std::string relu6(const Arguments& arguments, Graph& graph) {
  return graph.add_node("Clip", {arguments.tensor(0), graph.add_constant(torch::tensor(0.0F)), graph.add_constant(torch::tensor(6.0F))});
}

std::string silu(const Arguments& arguments, Graph& graph) {
  return graph.add_node("Mul", {arguments.tensor(0), graph.add_node("Sigmoid", {arguments.tensor(0)})});
}

std::string hardsigmoid(const Arguments& arguments, Graph& graph) {
  return graph.add_node("HardSigmoid", {arguments.tensor(0)}, {{"alpha", 1.0F / 6}, {"beta", 0.5F}});
}

std::string hardswish(const Arguments& arguments, Graph& graph) {
  return graph.add_node("Mul", {arguments.tensor(0), hardsigmoid(arguments, graph)});
}

std::string gelu(const Arguments& arguments, Graph& graph) {
  if (arguments.text(1) != "none") arguments.refuse("with an approximation");
  // x/2 · (1 + erf(x/√2))
  const auto x = arguments.tensor(0);
  const auto scaled = graph.add_node("Mul", {x, graph.add_constant(torch::tensor(static_cast<float>(1 / std::numbers::sqrt2)))});
  const auto sum = graph.add_node("Add", {graph.add_node("Erf", {scaled}), graph.add_constant(torch::tensor(1.0F))});
  return graph.add_node("Mul", {graph.add_node("Mul", {x, graph.add_constant(torch::tensor(0.5F))}), sum});
}

std::string add(const Arguments& arguments, Graph& graph) {
  if (arguments.number(2) != 1) arguments.refuse("with a factor");
  return graph.add_node("Add", {arguments.tensor(0), arguments.tensor(1)});
}

std::string multiply(const Arguments& arguments, Graph& graph) {
  const auto factor =
      arguments.is_tensor(1) ? arguments.tensor(1) : graph.add_constant(torch::tensor(static_cast<float>(arguments.number(1))));
  return graph.add_node("Mul", {arguments.tensor(0), factor});
}

std::string flatten(const Arguments& arguments, Graph& graph) {
  if (arguments.integer(1) < 1) arguments.refuse(fmt::format("with start_dim {}", arguments.integer(1)));
  if (arguments.integer(1) != 1 || arguments.integer(2) != -1) return reshape(arguments, graph);
  return graph.add_node("Flatten", {arguments.tensor(0)}, {{"axis", int64_t{1}}});
}

// The attributes of both kinds of pooling; `ceil_mode`: the argument with this name.
Attributes pooling(const Arguments& arguments, size_t ceil_mode) {
  constexpr size_t kRank = 2;
  const auto kernel = arguments.integers(1, kRank);
  const auto strides = arguments.integers(2, kRank);
  return {{"kernel_shape", kernel},
          {"strides", strides.empty() ? kernel : strides},
          {"pads", both_sides(arguments.integers(3, kRank))},
          {"ceil_mode", int64_t{arguments.boolean(ceil_mode)}}};
}

std::string max_pool2d(const Arguments& arguments, Graph& graph) {
  auto attributes = pooling(arguments, /*ceil_mode=*/5);
  attributes["dilations"] = arguments.integers(4, 2);
  return graph.add_node("MaxPool", {arguments.tensor(0)}, std::move(attributes));
}

std::string avg_pool2d(const Arguments& arguments, Graph& graph) {
  if (!arguments.is_none(6)) arguments.refuse("with divisor_override");
  auto attributes = pooling(arguments, /*ceil_mode=*/4);
  attributes["count_include_pad"] = int64_t{arguments.boolean(5)};
  return graph.add_node("AveragePool", {arguments.tensor(0)}, std::move(attributes));
}

// Returns a matrix [to, from] that computes the means over the parts into which adaptive_avg_pool divides an axis.
torch::Tensor pooling_matrix(int64_t from, int64_t to) {
  auto matrix = torch::zeros({to, from});
  for (int64_t i = 0; i < to; ++i) {
    const auto begin = i * from / to;
    const auto end = ((i + 1) * from + to - 1) / to;
    matrix[i].slice(0, begin, end).fill_(1.0 / static_cast<double>(end - begin));
  }
  return matrix;
}

std::string adaptive_avg_pool2d(const Arguments& arguments, Graph& graph) {
  const auto size = arguments.integers(1);
  const auto shape = arguments.shape(0);
  if (size == Ints{1, 1}) return graph.add_node("GlobalAveragePool", {arguments.tensor(0)});
  // For output sizes other than 1 x 1, ONNX has no operator, so two matrix products compute the means over rows and columns.
  const auto rows = graph.add_constant(pooling_matrix(shape.at(2), size.at(0)));
  const auto columns = graph.add_constant(pooling_matrix(shape.at(3), size.at(1)).t());
  return graph.add_node("MatMul", {graph.add_node("MatMul", {rows, arguments.tensor(0)}), columns});
}

std::string slice(const Arguments& arguments, Graph& graph) {
  const auto begin = arguments.is_none(2) ? 0 : arguments.integer(2);
  const auto end = arguments.is_none(3) ? std::numeric_limits<int64_t>::max() : arguments.integer(3);
  const auto constant = [&](int64_t value) { return graph.add_constant(torch::tensor({value})); };
  return graph.add_node(
      "Slice", {arguments.tensor(0), constant(begin), constant(end), constant(arguments.integer(1)), constant(arguments.integer(4))});
}

std::string constant_pad_nd(const Arguments& arguments, Graph& graph) {
  // The pairs are for the last dimension, the one before it, and so on.
  const auto pairs = arguments.integers(1);
  const auto rank = arguments.shape(0).size();
  Ints pads(2 * rank, 0);
  for (size_t i = 0; i < pairs.size(); ++i) pads.at((i % 2 == 0 ? rank : 2 * rank) - 1 - i / 2) = pairs[i];
  const auto value = graph.add_constant(torch::tensor(static_cast<float>(arguments.number(2))));
  return graph.add_node("Pad", {arguments.tensor(0), graph.add_constant(torch::tensor(pads)), value});
}

using Conversion = std::function<std::string(const Arguments& arguments, Graph& graph)>;

// The operator `op` of the first argument.
Conversion simple(const char* op) {
  return [op](const Arguments& arguments, Graph& graph) { return graph.add_node(op, {arguments.tensor(0)}); };
}

std::unordered_map<std::string, Conversion>& conversions() {
  static std::unordered_map<std::string, Conversion> all = {
      {"aten::_convolution", convolution},
      {"aten::batch_norm", batch_norm},
      {"aten::linear", linear},
      {"aten::addmm", addmm},
      {"aten::t", [](const auto& arguments, Graph& graph) { return swap_dimensions(arguments, graph, 0, 1); }},
      {"aten::transpose",
       [](const auto& arguments, Graph& graph) { return swap_dimensions(arguments, graph, arguments.integer(1), arguments.integer(2)); }},
      {"aten::permute",
       [](const auto& arguments, Graph& graph) {
         return graph.add_node("Transpose", {arguments.tensor(0)}, {{"perm", arguments.integers(1)}});
       }},
      {"aten::unflatten", reshape},
      {"aten::cat",
       [](const auto& arguments, Graph& graph) {
         return graph.add_node("Concat", arguments.tensors(0), {{"axis", arguments.integer(1)}});
       }},
      {"aten::select", select},
      // convert_list_unpack reads the parts from the tensor.
      {"aten::unbind", [](const auto& arguments, Graph&) { return arguments.tensor(0); }},
      {"aten::expand_as", expand_as},
      {"aten::layer_norm", layer_norm},
      {"aten::scaled_dot_product_attention", attention},
      {"aten::sigmoid", simple("Sigmoid")},
      {"aten::silu", silu},
      {"aten::hardsigmoid", hardsigmoid},
      {"aten::hardswish", hardswish},
      {"aten::avg_pool2d", avg_pool2d},
      {"aten::mean", mean},
      {"aten::dropout", dropout},
      {"aten::relu6", relu6},
      {"aten::relu", simple("Relu")},
      {"aten::relu_", simple("Relu")},
      {"aten::gelu", gelu},
      {"aten::add", add},
      {"aten::add_", add},
      {"aten::mul", multiply},
      {"aten::flatten", flatten},
      {"aten::max_pool2d", max_pool2d},
      {"aten::adaptive_avg_pool2d", adaptive_avg_pool2d},
      {"aten::slice", slice},
      {"aten::constant_pad_nd", constant_pad_nd},
  };
  return all;
}

// `real`: the type of floating-point elements.
Tensor to_constant(std::string name, const torch::Tensor& tensor, torch::ScalarType real) {
  const bool is_float = tensor.is_floating_point();
  const bool is_half = real == torch::kHalf;
  if (is_half && is_float && tensor.isfinite().ne(tensor.to(torch::kHalf).isfinite()).any().item<bool>()) {
    throw UsageError(fmt::format("--fp16: {} has values beyond 65504, the maximum of float16; remove --fp16", name));
  }
  const auto stored = tensor.detach().to(is_float ? real : torch::kLong).contiguous();
  return {.name = std::move(name),
          .shape = stored.sizes().vec(),
          .type = !is_float                ? ElementType::kInt64
                  : is_half                ? ElementType::kFloat16
                  : real == torch::kDouble ? ElementType::kFloat64
                                           : ElementType::kFloat,
          .bytes = {static_cast<const char*>(stored.const_data_ptr()), stored.nbytes()}};
}

}  // namespace

void Graph::add_parameter(const torch::jit::Value* value, const std::string& path, const torch::Tensor& tensor) {
  name(value, path);
  parameter_shapes_[value] = tensor.sizes().vec();
  if (parameters_.insert(path).second) model_.constants.push_back(to_constant(path, tensor, real_type()));
}

std::string Graph::add_constant(const torch::Tensor& tensor) {
  return add_constant(tensor, tensor.scalar_type() == torch::kDouble ? torch::kDouble : real_type());
}

std::string Graph::add_constant(const torch::Tensor& tensor, torch::ScalarType real) {
  model_.constants.push_back(to_constant(fmt::format("constant_{}", model_.constants.size()), tensor, real));
  return model_.constants.back().name;
}

std::string Graph::add_node(const char* op, Names inputs, Attributes attributes) {
  model_.nodes.push_back({op, std::move(inputs), fmt::format("{}_{}", op, num_nodes_++), std::move(attributes)});
  return model_.nodes.back().output;
}

std::string Graph::add_choice(const std::string& condition, const std::function<std::string()>& if_true,
                              const std::function<std::string()>& if_false) {
  const auto branch_of = [this](const std::function<std::string()>& add) {
    auto outside = std::exchange(model_.nodes, {});
    auto output = add();
    return std::make_shared<const Branch>(std::exchange(model_.nodes, std::move(outside)), std::move(output));
  };
  return add_node("If", {condition}, {{"then_branch", branch_of(if_true)}, {"else_branch", branch_of(if_false)}});
}

Ints Graph::shape_of(const torch::jit::Value* value) const {
  const auto parameter = parameter_shapes_.find(value);
  if (parameter != parameter_shapes_.end()) return parameter->second;
  const auto shape = value->type()->expectRef<c10::TensorType>().sizes().concrete_sizes();
  if (!shape) throw std::logic_error("a traced tensor has no shape: " + value->debugName());
  return *shape;
}

bool has_conversion(const std::string& name) { return conversions().contains(name); }

void convert_operator(const torch::jit::Node& node, Graph& graph) {
  const auto& conversion = conversions().at(node.kind().toQualString());
  graph.name(node.output(), conversion(Arguments(node, graph), graph));
}

void convert_list_unpack(const torch::jit::Node& node, Graph& graph) {
  const Arguments unbind(*node.input()->node(), graph);
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    graph.name(node.output(i), take(graph, unbind.tensor(0), unbind.integer(1), static_cast<int64_t>(i)));
  }
}

}  // namespace trainer::onnx

namespace trainer {

void register_onnx_conversion(const std::string& name, std::function<std::string(OnnxOperator& op)> convert) {
  const auto convert_own = [name, convert = std::move(convert)](onnx::Arguments arguments, const onnx::Graph& /*graph*/) {
    try {
      return convert(arguments);
    } catch (const UsageError&) {
      throw;
    } catch (const std::exception& error) {
      const auto* of_libtorch = dynamic_cast<const c10::Error*>(&error);
      throw UsageError(fmt::format("--format onnx: the registered conversion of {} failed: {}", name,
                                   of_libtorch != nullptr ? of_libtorch->what_without_backtrace() : error.what()));
    }
  };
  onnx::conversions().insert_or_assign(name, convert_own);
}

}  // namespace trainer
