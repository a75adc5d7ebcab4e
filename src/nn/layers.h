#pragma once
// Layers with learned weights (trainer/nn.h) of a network as a whole.

#include <torch/torch.h>

#include <functional>
#include <unordered_map>
#include <vector>

#include "nn/convolution/convolution.h"
#include "trainer/nn.h"

namespace trainer::nn {

// Calls Conv2d::use_winograd of every convolution below `network`.
void use_winograd(const torch::nn::Module& network, std::optional<convolution::Tile> largest_tile);

// The parameters of all convolutions and linear layers of `network` that are trained.
std::vector<torch::Tensor> trained_weights(const torch::nn::Module& network);

// While it exists, those layers use in this thread what one kernel has made of their parameters: the same values in autocast's type.
// Autocast itself would convert each by a kernel of its own. In the backward pass the parameters get their gradients together, after the
// last one has been computed; until then those in autocast's type are kept, too.
class WeightCasts {
 public:
  // `weights`: of trained_weights().
  WeightCasts(const std::vector<torch::Tensor>& weights, torch::ScalarType dtype);
  ~WeightCasts();
  WeightCasts(const WeightCasts&) = delete;
  WeightCasts& operator=(const WeightCasts&) = delete;

 private:
  friend torch::Tensor used_weight(const torch::Tensor& weight);
  struct Cast {
    torch::Tensor value;
    int64_t version;  // of the parameter, when it was converted
  };
  std::unordered_map<const c10::TensorImpl*, Cast> casts_;
};

// What a layer computes with: the converted one, if there is one, autocast is on and the weight has not been changed since; otherwise
// `weight` itself, which may be undefined.
torch::Tensor used_weight(const torch::Tensor& weight);

// Observes the output of each layer, for the search for non-finite values. Costs training nothing while no observer exists.

// While it lives, `see` is called with every layer of src/nn (convolution, linear, normalisation, dropout) that this thread applies, and
// with the layer's output. Must not be nested.
class LayerObserver {
 public:
  using See = std::function<void(const torch::nn::Module& layer, const torch::Tensor& output)>;
  explicit LayerObserver(See see);
  ~LayerObserver();
  LayerObserver(const LayerObserver&) = delete;
  LayerObserver& operator=(const LayerObserver&) = delete;

 private:
  friend torch::Tensor observed(const torch::nn::Module& layer, torch::Tensor output);
  See see_;
};

// Whether this thread has an observer.
bool has_observer();

// Every layer passes its output through this function.
torch::Tensor observed(const torch::nn::Module& layer, torch::Tensor output);

}  // namespace trainer::nn
