// A network with one hidden layer for images of 32×32 pixels.

#include "models/registry.h"
#include "nn/layers.h"
#include "trainer/nn.h"

namespace trainer::models {
namespace {

struct PerceptronOptions : ClassifierOptions {
  int64_t hidden_features = 64;

  void describe(KeyTable& keys) {
    describe_num_classes(keys);
    keys.add("hidden_features", hidden_features, {.min = 1, .doc = "Outputs of the hidden layer."});
  }
  std::vector<int64_t> input_shape() const override { return {3, 32, 32}; }
};

class Perceptron : public Model {
 public:
  Perceptron(const PerceptronOptions& options, const BuildContext& context) : Model(options) {
    hidden_ = register_module("hidden", std::make_shared<nn::Linear>(3 * 32 * 32, options.hidden_features));
    output_ = register_module("output", std::make_shared<nn::Linear>(options.hidden_features, options.num_outputs()));
    for (const auto& layer : {hidden_, output_}) nn::default_uniform_(layer->weight, layer->bias, context.init_generator);
  }

  torch::Tensor forward(const torch::Tensor& x) override { return output_->forward(hidden_->forward(x.flatten(1)).relu_()); }

 private:
  std::shared_ptr<nn::Linear> hidden_, output_;
};

}  // namespace

void add_perceptron(ModelRegistry& registry) {
  registry.add<PerceptronOptions>("perceptron", "Two linear layers for 32×32 images.",
                                  [](const auto& options, const auto& context) { return std::make_shared<Perceptron>(options, context); });
}

}  // namespace trainer::models
