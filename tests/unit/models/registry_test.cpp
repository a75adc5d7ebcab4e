#include <gtest/gtest.h>

#include <map>
#include <set>
#include <stdexcept>

#include "base/keys/key.h"
#include "checkpoint/pytorch_file.h"
#include "models/model_registry.h"
#include "nn/batch_norm.h"
#include "nn/layers.h"
#include "tests/testing/string_output.h"
#include "tests/unit/models/build_model.h"
#include "trainer/state.h"

namespace trainer::models::test {
namespace {

// A list that contains layers of all kinds except global_avg_pool.
constexpr const char* kEveryLayer =
    "[conv_norm: {channels: 16}, conv: {channels: 16, bias: false}, batch_norm, relu, relu6, depthwise_conv, batch_norm, relu, silu, "
    "residual: [conv_norm: {channels: 32, stride: 2}], "
    "concat: [identity, sequence: [max_pool: {kernel_size: 3, stride: 1, padding: 1}, conv_norm: {channels: 16, kernel_size: 1}]], "
    "squeeze_excite, mb_conv: {channels: 32, stride: 2}, inverted_residual: {channels: 32, squeeze_excite: true}, "
    "dense_block: {num_layers: 2, growth: 8}, transition, layer_norm, convnext_block, gelu, "
    "repeat: {times: 2, layers: [bottleneck: {channels: 32, groups: 2}]}, basic_block: {channels: 32}, cifar_block: {channels: 48}, "
    "cifar_block: {channels: 48, stride: 2}, "
    "sigmoid, hardsigmoid, avg_pool, flatten, linear: {features: 16}, hardswish, dropout, layer_norm, linear]";

// Options that make the network small enough for a unit test, if it has them; defaults for all others.
std::shared_ptr<Model> build_light(const std::string& name, const BuildContext& context = make_context()) {
  const char* image_size = name.starts_with("dinov2") ? "28" : "32";  // a multiple of the size of a patch
  const std::map<std::string, std::string> light = {{"head", "cifar"},          {"depth", "10"},        {"width", "2"}, {"dropout", "0.3"},
                                                    {"image_size", image_size}, {"layers", kEveryLayer}};
  std::string options;
  const auto defaults = model_registry().configure(name);
  const SectionKeys section(*defaults.options);
  for (const auto& key : section.keys) {
    if (light.contains(key.name)) options += key.name + ": " + light.at(key.name) + ", ";
  }
  return build(name, options, context);
}

torch::Tensor input_of(const Model& model, int64_t batch_size) {
  std::vector<int64_t> shape = model.input_shape();
  for (int64_t& size : shape) size = size == -1 ? 32 : size;
  shape.insert(shape.begin(), batch_size);
  return at::randn(shape, at::detail::createCPUGenerator(5));
}

TEST(ModelRegistry, ComponentsAndKeysAreDocumented) {
  for (const auto& component : model_registry().components()) {
    EXPECT_FALSE(component.doc.empty()) << component.name;
    EXPECT_EQ(component.doc.find('\n'), std::string::npos) << component.name;
    const auto options = component.make_options();
    const SectionKeys section(*options);
    std::set<std::string> key_names;
    for (const Key& key : section.keys) {
      EXPECT_TRUE(key_names.insert(key.name).second) << component.name << " " << key.name;
      EXPECT_FALSE(key.doc.empty()) << component.name << " " << key.name;
    }
  }
}

TEST(ModelRegistry, AnUnknownNameThrowsLogicError) {
  EXPECT_THROW(model_registry().make({"resnet19", nullptr}, make_context()), std::logic_error);
}

class EveryModel : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryModel, ForwardAndBackwardDoNotUseTheProcessWideGenerator) {
  const torch::Tensor process_wide = at::globalContext().defaultGenerator(torch::kCPU).get_state();
  const auto model = build_light(GetParam());
  const torch::Tensor output = model->forward(input_of(*model, 3));
  EXPECT_EQ(output.sizes(), (std::vector<int64_t>{3, 10}));
  EXPECT_EQ(model->num_outputs(), 10);
  EXPECT_TRUE(output.isfinite().all().item<bool>());
  output.square().mean().backward();
  for (const auto& item : model->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
  }
  EXPECT_TRUE(at::equal(at::globalContext().defaultGenerator(torch::kCPU).get_state(), process_wide));
}

TEST_P(EveryModel, IsTheSameNetworkForTheSameSeedAlsoInChannelsLast) {
  const auto model = build_light(GetParam());
  int64_t num_made = 0;
  BuildContext context = make_context();
  context.norm = nn::NormFactory([&](int64_t num_channels, const nn::BatchNormOptions& options) {
    ++num_made;
    return std::make_shared<nn::BatchNorm2d>(num_channels, options);
  });
  const auto again = build_light(GetParam(), context);
  const auto parameters = model->parameters();
  auto parameters_again = again->parameters();
  ASSERT_EQ(parameters.size(), parameters_again.size());
  for (size_t i = 0; i < parameters.size(); ++i) EXPECT_TRUE(at::equal(parameters[i], parameters_again[i])) << i;

  int64_t num_norms = 0;
  for (const auto& module : again->modules()) num_norms += module->as<nn::BatchNorm2d>() == nullptr ? 0 : 1;
  EXPECT_EQ(num_made, num_norms) << "a norm layer was not created by the factory";

  model->eval();
  again->eval();
  torch::Tensor input = input_of(*model, 2);
  const torch::Tensor expected = model->forward(input);
  if (input.dim() == 4) input = input.contiguous(torch::MemoryFormat::ChannelsLast);
  for (torch::Tensor& parameter : parameters_again) {
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(torch::MemoryFormat::ChannelsLast));
  }
  int64_t num_forwards = 0;
  const nn::LayerObserver observer([&](const torch::nn::Module& layer, const torch::Tensor& output) {
    if (dynamic_cast<const nn::BatchNorm2d*>(&layer) == nullptr) return;
    ++num_forwards;
    EXPECT_TRUE(output.is_contiguous(torch::MemoryFormat::ChannelsLast));
  });
  EXPECT_TRUE(at::allclose(again->forward(input), expected, 1e-3, 1e-4));
  EXPECT_EQ(num_forwards, num_norms);
}

// The output and the gradients of the parameters in training mode, then the output in evaluation mode; in float64 and channels_last.
std::vector<torch::Tensor> results_of(Model& model) {
  model.to(torch::kFloat64);
  for (auto& parameter : model.parameters()) {
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(torch::MemoryFormat::ChannelsLast));
  }
  torch::Tensor input = input_of(model, 3).to(torch::kFloat64);
  if (input.dim() == 4) input = input.contiguous(torch::MemoryFormat::ChannelsLast);
  const auto output = model.forward(input);
  output.square().mean().backward();
  std::vector<torch::Tensor> results = {output.detach()};
  for (const auto& parameter : model.parameters()) results.push_back(parameter.grad());
  model.eval();
  const torch::NoGradGuard no_grad;
  results.push_back(model.forward(input));
  return results;
}

TEST_P(EveryModel, WinogradsAlgorithmAndFusedOperatorsComputeTheSame) {
  // Deeper networks amplify roundings more, so they are skipped.
  for (const char* name : {"resnet101", "resnet152", "efficientnet_b1", "efficientnet_b2", "efficientnet_b3", "efficientnet_lite1",
                           "efficientnet_lite2", "densenet169", "convnext_small", "dinov2_b_14", "dinov2_reg4_b_14"}) {
    if (GetParam() == name) GTEST_SKIP() << "has the layers of a smaller network, more often";
  }
  const auto expected = results_of(*build_light(GetParam()));
  const auto model = build_light(GetParam());
  nn::use_winograd(*model, nn::convolution::Tile::k4);  // a layer of small images uses k2
  nn::use_fused_operators(*model);
  const auto actual = results_of(*model);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    // Each layer amplifies the rounding differences of the layers before it.
    EXPECT_LT((actual[i] - expected[i]).norm().item<double>(), 1e-6 * expected[i].norm().item<double>() + 1e-10) << i;
  }
}

TEST_P(EveryModel, IsSavedAndLoadedExactly) {
  const auto saved = build_light(GetParam());
  saved->forward(input_of(*saved, 3));  // changes the running statistics
  trainer::testing::StringOutput file;
  checkpoint::write_pytorch_file(state::state_of(*saved), file);
  const auto loaded = build_light(GetParam(), make_context(2));
  const auto tree = checkpoint::read_pytorch_file(trainer::testing::as_bytes(file.content()), "model.pt");
  state::load_state_of(*loaded, state::View(tree, "model.pt"));
  saved->eval();
  loaded->eval();
  const torch::NoGradGuard no_grad;
  const torch::Tensor input = input_of(*saved, 2);
  EXPECT_TRUE(at::equal(loaded->forward(input), saved->forward(input)));
}

TEST(ModelRegistry, AnotherSeedGivesOtherWeights) {
  EXPECT_FALSE(at::equal(build("resnet20", "", make_context(1))->parameters()[0], build("resnet20", "", make_context(2))->parameters()[0]));
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryModel, ::testing::ValuesIn(model_registry().names()),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace trainer::models::test
