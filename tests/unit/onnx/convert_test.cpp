#include "export/onnx/convert.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <variant>

#include "trainer/error.h"
#include "trainer/onnx.h"

namespace trainer::onnx {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Dimension = std::variant<int64_t, std::string>;

// A network without parameters whose forward has this body; its shapes are those of a batch of two samples.
torch::jit::Module network(const std::string& body, const std::vector<int64_t>& sample_shape) {
  torch::jit::Module module("Network");
  module.define("def forward(self, x):\n  return " + body + "\n");
  const auto graph = module.get_method("forward").graph();
  auto shape = sample_shape;
  shape.insert(shape.begin(), 2);
  for (auto* value : {graph->inputs().at(1), graph->outputs().at(0)}) value->setType(c10::TensorType::create(torch::zeros(shape)));
  return module;
}

std::string refusal_of(const std::string& body, const std::vector<int64_t>& sample_shape = {3, 8, 8}) {
  try {
    convert(network(body, sample_shape), sample_shape, {});
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ConvertToOnnx, NamesAllOperatorsWithoutConversion) {
  EXPECT_EQ(refusal_of("torch.softmax(torch.cos(torch.relu(x)), 1)"),
            "--format onnx: the network uses operators that cannot be converted: aten::cos, aten::softmax; use --format torchscript, or "
            "register conversions in the network's plug-in (trainer/onnx.h)");
}

TEST(ConvertToOnnx, ConvertsOperatorsOfPlugIns) {
  register_onnx_conversion("aten::leaky_relu", [](OnnxOperator& op) {
    EXPECT_EQ(op.shape(0), (std::vector<int64_t>{2, 3, 8, 8}));
    return op.add_node("LeakyRelu", {op.tensor(0)}, {{"alpha", static_cast<float>(op.number(1))}});
  });
  register_onnx_conversion("aten::roll", [](OnnxOperator& op) {
    return op.add_node("Roll", {op.tensor(0), op.add_constant(torch::tensor(op.integers(1)))}, {{"dim", op.integer(2)}});
  });
  const auto model = convert(network("torch.leaky_relu(x, 0.25)", {3, 8, 8}), {3, 8, 8}, {});
  const auto node = std::ranges::find(model.nodes, "LeakyRelu", &Node::op);
  ASSERT_NE(node, model.nodes.end());
  EXPECT_EQ(std::get<float>(node->attributes.at("alpha")), 0.25F);
  EXPECT_EQ(refusal_of("torch.roll(x, [1], [1, 2])"),
            "--format onnx: the network uses aten::roll with an argument that is not constant, which cannot be converted; use --format "
            "torchscript");
  register_onnx_conversion("aten::roll", [](OnnxOperator& op) { return op.add_node("Roll", {op.tensor(0)}, {{"shift", op.integer(7)}}); });
  EXPECT_THAT(refusal_of("torch.roll(x, 1)"), ::testing::StartsWith("--format onnx: the registered conversion of aten::roll failed: "));
}

TEST(ConvertToOnnx, NamesFormsWithoutConversion) {
  const auto expect = [](const std::string& body, const std::string& text) {
    EXPECT_EQ(refusal_of(body), "--format onnx: the network uses " + text + ", which cannot be converted; use --format torchscript");
  };
  expect("torch.gelu(x, approximate='tanh')", "aten::gelu with an approximation");
  expect("torch.add(x, x, alpha=2)", "aten::add with a factor");
  expect("x + 1", "aten::add with a number instead of a tensor");
  expect("torch.flatten(x)", "aten::flatten with start_dim 0");
  expect("torch.layer_norm(x, [8])", "aten::layer_norm without weight or bias");
  expect("torch.batch_norm(x, None, None, None, None, False, 0.1, 1e-5, False)",
         "aten::batch_norm without weight, bias or running statistics");
}

// [rows, columns]
torch::Tensor matrix_of(const Tensor& constant) {
  return torch::from_blob(const_cast<char*>(constant.bytes.data()), constant.shape, torch::kFloat);
}

TEST(ConvertToOnnx, AdaptivePoolingIsTwoProducts) {
  for (const auto& [height, width] : std::vector<std::pair<int64_t, int64_t>>{{2, 2}, {7, 14}, {10, 9}}) {
    const auto model = convert(network("torch.adaptive_avg_pool2d(x, [7, 7])", {3, height, width}), {3, height, width}, {});
    ASSERT_EQ(model.constants.size(), 2);
    const auto x = torch::rand({2, 3, height, width});
    const auto actual = matrix_of(model.constants[0]).matmul(x).matmul(matrix_of(model.constants[1]));
    EXPECT_TRUE(torch::allclose(actual, at::adaptive_avg_pool2d(x, {7, 7}))) << height << " x " << width;
  }
}

TEST(ConvertToOnnx, ANetwork) {
  const auto model = convert(network("torch.relu(torch.relu(x)) * 3", {3, 8, 8}), {3, 8, 8}, {});
  std::vector<std::string> ops;
  for (const auto& node : model.nodes) ops.push_back(node.op);
  EXPECT_THAT(ops, ElementsAre("Relu", "Relu", "Mul", "Identity"));
  EXPECT_THAT(model.nodes.front().inputs, ElementsAre("images"));
  EXPECT_EQ(model.nodes.back().output, "logits");
  EXPECT_THAT(model.outputs.front().shape,
              ElementsAre(Dimension("batch"), Dimension(int64_t{3}), Dimension(int64_t{8}), Dimension(int64_t{8})));
  EXPECT_THAT(to_file(model), AllOf(HasSubstr("images"), HasSubstr("logits"), HasSubstr("batch")));
}

TEST(ConvertToOnnx, FixedSizesAndBothOutputs) {
  const exported::Interface interface {
    .preprocessing = exported::Preprocessing{.channels = 3, .mean = {0, 0, 0}, .std = {1, 1, 1}}, .outputs = exported::Outputs::kBoth,
    .is_half = true, .batch_size = 4, .image_size = exported::Interface::Size{1, 3},
  };
  const auto model = convert(network("x * 3", {3, 1, 1}), {3, 1, 1}, interface);
  EXPECT_EQ(model.input.type, ElementType::kUint8);
  EXPECT_THAT(model.input.shape, ElementsAre(Dimension(int64_t{4}), Dimension(int64_t{1}), Dimension(int64_t{3}), Dimension(int64_t{3})));
  ASSERT_EQ(model.outputs.size(), 2);
  EXPECT_EQ(model.outputs.back().name, "probabilities");
  const auto num_half = std::ranges::count(model.constants, ElementType::kFloat16, &Tensor::type);
  EXPECT_EQ(num_half, 1) << "the factor 3; the preprocessing computes in float32";
}

TEST(ConvertToOnnx, ImagesOfOneSizeNeedNoComputationOfSizes) {
  using exported::ResizeStep;
  const auto operators = [](const exported::Interface& interface) {
    std::vector<std::string> ops;
    for (const auto& node : convert(network("torch.relu(x)", {3, 4, 4}), {3, 4, 4}, interface).nodes) ops.push_back(node.op);
    return ops;
  };
  exported::Interface interface {
    .preprocessing = exported::Preprocessing{.channels = 3,
                                             .steps = {ResizeStep{ResizeStep::Fit::kShorter, 4, 4}, exported::CropStep{4, 4, true}},
                                             .mean = {0, 0, 0},
                                             .std = {1, 1, 1}},
  };
  EXPECT_THAT(operators(interface), AllOf(Contains("Shape"), Contains("If"), Contains("Pad")));
  interface.image_size = exported::Interface::Size{8, 12};
  EXPECT_THAT(operators(interface), ElementsAre("Transpose", "Cast", "MatMul", "MatMul", "Mul", "Add", "Floor", "Add", "Mul", "Floor",
                                                "Clip", "MatMul", "MatMul", "Mul", "Add", "Floor", "Add", "Mul", "Floor", "Clip", "Slice",
                                                "Div", "Sub", "Div", "Identity", "Relu", "Identity"));
  interface.image_size = exported::Interface::Size{4, 4};
  EXPECT_THAT(operators(interface), ElementsAre("Transpose", "Cast", "Div", "Sub", "Div", "Identity", "Relu", "Identity"));
}

}  // namespace
}  // namespace trainer::onnx
