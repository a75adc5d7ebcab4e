#pragma once
// torch.amp.GradScaler: keeps float16 gradients within range by scaling the loss, and finds the largest scale that does not overflow.

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "state/view.h"

namespace trainer::amp {

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
};

// For each optimizer step, in this order:
//   scale(loss).backward()                  each micro-step's loss
//   unscale(parameters)                     on gradients that are already averaged over all processes, whose found_inf then agree
//   clip_grad_norm, if at all
//   optimizer.step(lr, scaler.found_inf())  skips itself where that is 1
//   update()
// All state is on the device and nothing but num_skipped() and state() waits for it. Arithmetic and results are PyTorch's. Another order is
// a bug of the caller: c10::Error.
class GradScaler {
 public:
  GradScaler(const GradScalerOptions& options, torch::Device device);

  // `loss` times the scale, to call backward() on.
  torch::Tensor scale(const torch::Tensor& loss) const;

  // Divides the gradients of those parameters that have one, in place, and looks whether any is infinite or NaN. Once a step. Refuses
  // float16 gradients and parameters without any gradient.
  void unscale(const std::vector<torch::Tensor>& parameters);
  // Float32 scalar, of this step's unscale(): 1 when any gradient was not finite, else 0. The next unscale() overwrites it.
  const torch::Tensor& found_inf() const;

  // Ends the step: the scale falls by backoff_factor when a gradient was not finite, and grows by growth_factor after growth_interval
  // steps in a row without that.
  void update();

  const torch::Tensor& current_scale() const { return scale_; }            // float32 scalar
  const torch::Tensor& growth_tracker() const { return growth_tracker_; }  // int32 scalar: steps since the scale last changed
  // Steps that were skipped so far. Waits for the device.
  int64_t num_skipped() const;

  // Between two steps: torch.amp.GradScaler's state_dict(), and "num_skipped". Waits for the device.
  state::Tree state() const;
  // Takes up where the scaler of that tree, or of Python, was; factors and interval come from the options. Throws CheckpointError.
  void load_state(const state::View& view);

 private:
  GradScalerOptions options_;
  torch::Tensor scale_;
  torch::Tensor growth_tracker_;
  torch::Tensor found_inf_;
  torch::Tensor num_skipped_;  // int64 scalar
  bool is_unscaled_ = false;
};

}  // namespace trainer::amp
