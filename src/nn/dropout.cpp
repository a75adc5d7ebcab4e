#include <utility>

#include "nn/layer_observer.h"
#include "trainer/nn.h"

namespace trainer::nn {

Dropout::Dropout(double p, at::Generator generator) : p_(p), generator_(std::move(generator)) {
  TORCH_CHECK(p >= 0.0 && p < 1.0, "dropout probability must lie in [0, 1), got ", p);
}

torch::Tensor Dropout::forward(const torch::Tensor& x) {
  if (!is_training() || p_ == 0.0) return x;
  // at::dropout does not accept a generator; this computes the same.
  const torch::Tensor mask = at::empty_like(x).bernoulli_(1.0 - p_, generator_).div_(1.0 - p_);
  return observed(*this, x * mask);
}

}  // namespace trainer::nn
