#pragma once
// The layers of a network: what they give, learn and cost.

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/model.h"

namespace trainer::inspection {

struct LayerRow {
  std::string name;                   // "layer1.0.conv1"
  std::string kind;                   // "Conv2d"
  std::vector<int64_t> output_shape;  // of one sample
  int64_t num_parameters = 0;         // 0 where the layer is applied again
  bool is_frozen = false;             // it has parameters, and none of them is trained
  int64_t flops = 0;                  // of one sample
};

struct LayerTable {
  std::vector<LayerRow> rows;  // in the order in which they are applied
  int64_t num_parameters = 0;  // of the whole network, with those that belong to no row
  int64_t num_trained = 0;     // of these, without frozen ones
  int64_t flops = 0;
};

// Applies `model` to `sample` [1, …], in evaluation, and leaves it in training mode. The rows are the layers of src/nn. FLOPs are those of
// the forward pass: two for each multiply-accumulate of a convolution or linear layer, as torch.utils.flop_counter counts; other layers,
// biases and activations count as 0.
LayerTable make_layer_table(models::Model& model, const torch::Tensor& sample);

}  // namespace trainer::inspection
