#pragma once
// Losses, and the registry from which a configuration selects one.

#include <torch/torch.h>

#include <memory>

#include "base/keys/key_table.h"

namespace trainer::nn {

class Loss {
 public:
  virtual ~Loss() = default;
  // Mean over the batch, a scalar of float32 or wider. `outputs` [N, K]; `targets` int64 [N], or the
  // probability of each class [N, K] in a floating type, for a loss with classes; else the outputs' shape and a floating type.
  virtual torch::Tensor operator()(const torch::Tensor& outputs, const torch::Tensor& targets) const = 0;
  // True when targets are class labels.
  virtual bool has_classes() const = 0;
};

using LossRegistry = Registry<std::unique_ptr<Loss>>;

const LossRegistry& loss_registry();

}  // namespace trainer::nn
