#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "models/model_registry.h"
#include "nn/batch_norm.h"
#include "nn/layers.h"
#include "run/inspection/inspect.h"
#include "tests/testing/read_component.h"

namespace trainer::inspection {
namespace {

LayerTable table_of(const std::string& name, const std::string& keys, int64_t size) {
  const auto component = testing::read_component(models::model_registry(), "{name: " + name + ", " + keys + "}");
  const auto model =
      models::model_registry().make(component, {at::detail::createCPUGenerator(1), at::detail::createCPUGenerator(2), nn::batch_norms()});
  return make_layer_table(*model, torch::zeros({1, 3, size, size}));
}

// The expected values are from tests/golden/make_flops.py.
TEST(LayerTable, CountsTheFlopsThatPyTorchCounts) {
  std::ifstream file(TRAINER_SOURCE_DIR "/tests/golden/flops.txt");
  int count = 0;
  std::string name, keys, size, parameters, flops;
  while (std::getline(file, name, ';') && std::getline(file, keys, ';') && std::getline(file, size, ';') &&
         std::getline(file, parameters, ';') && std::getline(file, flops)) {
    const auto table = table_of(name, keys, std::stoll(size));
    EXPECT_EQ(table.num_parameters, std::stoll(parameters)) << name;
    EXPECT_EQ(table.flops, std::stoll(flops)) << name << " " << keys;
    ++count;
  }
  EXPECT_EQ(count, 19);
}

TEST(LayerTable, HasARowForEachLayerInOrder) {
  const auto table = table_of("resnet18", "stem: cifar", 32);
  ASSERT_EQ(table.rows.size(), 41U);
  const auto& first = table.rows.front();
  EXPECT_EQ(first.name, "conv1");
  EXPECT_EQ(first.kind, "Conv2d");
  EXPECT_EQ(first.output_shape, (std::vector<int64_t>{64, 32, 32}));
  EXPECT_EQ(first.num_parameters, 64 * 3 * 3 * 3);
  EXPECT_EQ(first.flops, int64_t{2} * 64 * 32 * 32 * 3 * 3 * 3);
  EXPECT_EQ(table.rows[1].name, "bn1");
  EXPECT_EQ(table.rows[1].kind, "BatchNorm2d");
  EXPECT_EQ(table.rows[1].num_parameters, 128);
  EXPECT_EQ(table.rows[1].flops, 0);
  EXPECT_EQ(table.rows.back().name, "fc");
  EXPECT_EQ(table.rows.back().output_shape, (std::vector<int64_t>{10}));
}

// A network that applies one layer twice and has a parameter of its own.
class Twice : public models::Model {
 public:
  struct Options : models::ModelOptions {
    void describe(KeyTable& /*keys*/) {}
    std::vector<int64_t> input_shape() const override { return {4}; }
    int64_t num_outputs() const override { return 4; }
  };
  Twice() : Model(Options()) {
    layer_ = register_module("layer", std::make_shared<nn::Linear>(4, 4));
    scale_ = register_parameter("scale", torch::ones({1}));
    torch::nn::init::zeros_(layer_->weight);
    torch::nn::init::zeros_(layer_->bias);
  }
  torch::Tensor forward(const torch::Tensor& x) override { return layer_->forward(layer_->forward(x)) * scale_; }

 private:
  std::shared_ptr<nn::Linear> layer_;
  torch::Tensor scale_;
};

TEST(LayerTable, CountsSharedParametersOnceAndThoseOfNoLayerInTheSum) {
  Twice model;
  const auto table = make_layer_table(model, torch::zeros({1, 4}));
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(table.rows[0].num_parameters, 20);
  EXPECT_EQ(table.rows[1].num_parameters, 0);
  EXPECT_EQ(table.flops, 2 * 2 * 16);
  EXPECT_EQ(table.num_parameters, 21);
  EXPECT_TRUE(model.is_training());
}

}  // namespace
}  // namespace trainer::inspection
