#pragma once
// Test-time augmentation: a network's outputs, averaged over several views of the same images.

#include <torch/torch.h>

#include <functional>

#include "trainer/options.h"

namespace trainer::task {

// `images`: [N, C, H, W], N may be 0; `forward` returns the outputs [N, K] of such a batch. Returns the mean outputs over the views of
// `tta`, in float32 where `forward` returns a type of lower precision; for `none` what `forward(images)` returns. Views have the dtype,
// device and memory format of `images`. Shifted views need H, W >= 2.
torch::Tensor average_over_views(const torch::Tensor& images, TestTimeAugmentation tta,
                                 const std::function<torch::Tensor(const torch::Tensor&)>& forward);

}  // namespace trainer::task
