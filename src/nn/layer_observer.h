#pragma once
// Lets somebody look at what each layer of a network gives, for a search that training itself does not pay for.

#include <torch/torch.h>

#include <functional>

namespace trainer::nn {

// As long as it lives, `see` is called with every layer of this room (convolution, linear, normalisation, dropout) that this thread
// applies, and its output. Not to be nested.
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

// Every layer hands its output through this.
torch::Tensor observed(const torch::nn::Module& layer, torch::Tensor output);

}  // namespace trainer::nn
