#pragma once
// Operations on all layers (trainer/nn.h) of a network.

#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nn/convolution/convolution.h"
#include "trainer/nn.h"
#include "trainer/torch.h"

namespace trainer::nn {

// The layers of this class below `network`, in the order of its modules.
template <class Layer>
std::vector<Layer*> layers_of(const torch::nn::Module& network) {
  std::vector<Layer*> layers;
  for (const auto& module : network.modules(/*include_self=*/false)) {
    if (auto* layer = module->template as<Layer>()) layers.push_back(layer);
  }
  return layers;
}

// Calls Conv2d::use_winograd of every convolution below `network`.
void use_winograd(const torch::nn::Module& network, std::optional<convolution::Tile> largest_tile);

// Calls Conv2d::fix_weights of every convolution below `network`.
void fix_weights(const torch::nn::Module& network);

// The trained parameters of all convolution, linear and attention layers of `network`.
std::vector<torch::Tensor> trained_weights(const torch::nn::Module& network);

// Base class of a T that changes what its thread computes while it exists. A thread can have one T at a time.
template <class T>
class OfThread {
 public:
  OfThread(const OfThread&) = delete;
  OfThread& operator=(const OfThread&) = delete;
  // The T of this thread, or null.
  static T* current() { return current_; }

 protected:
  OfThread() {
    TORCH_CHECK(current_ == nullptr, "this thread already has an object of this kind; destroy it before creating another");
    current_ = static_cast<T*>(this);
  }
  ~OfThread() { current_ = nullptr; }

 private:
  static inline thread_local T* current_ = nullptr;
};

// While an object exists, the layers on this thread use copies of their weights in autocast's type. One kernel converts all weights;
// autocast itself would use one kernel per weight. In the backward pass, all weights receive their gradients together, after the last
// gradient has been computed; until then the gradients in autocast's type are also kept in memory.
class WeightCasts : public OfThread<WeightCasts> {
 public:
  // `weights`: the result of trained_weights().
  WeightCasts(const std::vector<torch::Tensor>& weights, torch::ScalarType dtype);

 private:
  friend torch::Tensor used_weight(const torch::Tensor& weight);
  struct Cast {
    torch::Tensor value;
    int64_t version;  // version of the parameter when it was converted
  };
  std::unordered_map<const c10::TensorImpl*, Cast> casts_;
};

// Returns the weight that a layer must use: the converted one if there is one, autocast is on and the weight has not changed since;
// otherwise `weight` itself, which may be undefined.
torch::Tensor used_weight(const torch::Tensor& weight);

// While an object exists, the functions of trainer/nn.h that initialise tensors do nothing on this thread: for a network whose values are
// then read from a file. LibTorch allocates large tensors without touching their memory, so that a file whose sizes do not fit is refused
// before it has cost memory or time.
class NoInitialValues : public OfThread<NoInitialValues> {};

// Observes the output of each layer, to search for non-finite values. Costs nothing while no observer exists. While an observer exists, it
// calls `see` with every layer of src/nn (convolution, linear, attention, normalisation, dropout, DropPath) that this thread applies, and
// with the layer's output.
class LayerObserver : public OfThread<LayerObserver> {
 public:
  using See = std::function<void(const torch::nn::Module& layer, const torch::Tensor& output)>;
  explicit LayerObserver(See see) : see_(std::move(see)) {}

 private:
  friend torch::Tensor observed(const torch::nn::Module& layer, torch::Tensor output);
  See see_;
};

// Shows the output to this thread's observer, if there is one, and returns it. Every layer must pass its output through this function.
torch::Tensor observed(const torch::nn::Module& layer, torch::Tensor output);

}  // namespace trainer::nn
