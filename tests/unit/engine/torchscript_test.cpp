#include "export/torchscript.h"

#include <gmock/gmock.h>
#include <torch/script.h>

#include "models/model_registry.h"
#include "nn/batch_norm.h"
#include "tests/testing/read_component.h"
#include "tests/testing/small_run.h"
#include "trainer/error.h"

namespace trainer::engine {
namespace {

std::shared_ptr<models::Model> make_model(const std::string& yaml) {
  return models::model_registry().make(testing::read_component(models::model_registry(), yaml),
                                       {.init_generator = at::make_generator<at::CPUGeneratorImpl>(1),
                                        .dropout_generator = at::make_generator<at::CPUGeneratorImpl>(2),
                                        .norm = nn::batch_norms()});
}

TEST(TorchScript, EveryKindOfNetworkIsTraced) {
  for (const auto& yaml : {"{name: demo_linear}", "{name: demo_conv}", "{name: resnet20}", "{name: resnet18}", "{name: resnet50}",
                           "{name: wide_resnet, depth: 16, width: 2}", "{name: vgg11_bn, head: cifar}"}) {
    const auto model = make_model(yaml);
    auto shape = model->input_shape();
    for (auto& size : shape) size = size == -1 ? 64 : size;
    std::istringstream file(exported::to_torchscript(*model, shape, "{}", {}));
    auto loaded = torch::jit::load(file);
    const auto names = [](const auto& tensors) {
      std::vector<std::string> found;
      for (const auto& item : tensors) found.push_back(item.name);
      return found;
    };
    EXPECT_EQ(loaded.named_parameters().size(), model->parameters().size()) << yaml;
    EXPECT_EQ(names(loaded.named_parameters()).front(), model->named_parameters().front().key()) << yaml;
    shape.insert(shape.begin(), 5);
    const auto x = torch::ones(shape);
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(torch::allclose(loaded.forward({x}).toTensor(), model->forward(x), 1e-5, 1e-5)) << yaml;
  }
}

struct MeanOverBatchOptions : models::ModelOptions {
  void describe(KeyTable&) {}
  std::vector<int64_t> input_shape() const override { return {3}; }
  int64_t num_outputs() const override { return 3; }
};

// A network whose trace contains the batch size as a constant.
struct MeanOverBatch : models::Model {
  MeanOverBatch() : Model(MeanOverBatchOptions()) { weight = register_parameter("weight", torch::ones({1})); }
  torch::Tensor forward(const torch::Tensor& x) override { return x * weight / x.size(0); }
  torch::Tensor weight;
};

TEST(TorchScript, ANetworkThatDependsOnTheBatchSizeIsRejected) {
  MeanOverBatch model;
  EXPECT_THAT([&] { exported::to_torchscript(model, {3}, "{}", {}); },
              ::testing::ThrowsMessage<Error>("for a batch of 3 the outputs of the traced network differ from those of the network; make "
                                              "the network's forward() independent of the batch size and of the values of its input"));
}

}  // namespace
}  // namespace trainer::engine
