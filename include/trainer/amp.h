#pragma once
// Mixed precision: torch.autocast (trainer/inference.h) and torch.amp.GradScaler.

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/error.h"
#include "trainer/inference.h"
#include "trainer/options.h"
#include "trainer/state.h"

namespace torch::optim {
class Optimizer;
}

namespace trainer::amp {

// Keeps float16 gradients within range by scaling the loss, and finds the largest scale that does not overflow.
// For each optimizer step, in this order:
//   scale(loss).backward()                  each micro-step's loss
//   unscale(parameters)                     on gradients that are already averaged over all ranks, so that found_inf is equal on all ranks
//   clip_grad_norm, if used
//   optimizer.step(lr, scaler.found_inf())  changes nothing if found_inf is 1
//   update()
// found_inf() needs an enabled scaler. All state is on the device; only step(), num_skipped() and state() wait for it. Arithmetic and
// results are PyTorch's. A missing or repeated call is a bug of the caller; the functions that notice it throw c10::Error.
class GradScaler {
 public:
  // Throws OptionError for options that are out of range.
  GradScaler(const GradScalerOptions& options, torch::Device device);

  // `loss` times the scale; call backward() on the result.
  torch::Tensor scale(const torch::Tensor& loss) const;

  // Divides the gradients by the scale in place and checks them for infinite and NaN values. To be called once per step. Parameters without
  // a gradient are ignored. Throws c10::Error for float16 gradients and if no parameter has a gradient.
  void unscale(const std::vector<torch::Tensor>& parameters);
  // The float32 scalar result of this step's unscale(): 1 when any gradient was not finite, else 0. The next unscale() overwrites it.
  const torch::Tensor& found_inf() const;

  // For LibTorch's optimizers, instead of unscale() and the optimizer's step(): calls unscale() if it was not called in this step, then the
  // optimizer's step() unless a gradient is not finite. Returns whether the optimizer's step() was called. Waits for the device. To be
  // called once before each update(), with one scaler for each optimizer.
  bool step(torch::optim::Optimizer& optimizer);

  // Ends the step: multiplies the scale by backoff_factor if a gradient was not finite, or by growth_factor after growth_interval
  // consecutive finite steps.
  void update();

  const torch::Tensor& current_scale() const { return scale_; }            // float32 scalar
  const torch::Tensor& growth_tracker() const { return growth_tracker_; }  // int32 scalar: steps since the scale last changed
  // Number of steps skipped so far. Waits for the device.
  int64_t num_skipped() const;

  // To be called between two steps. Returns torch.amp.GradScaler's state_dict() plus "num_skipped", or an empty dictionary if the scaler is
  // not enabled. Waits for the device.
  state::Tree state() const;
  // Restores the result of state() or of Python's state_dict(); factors and interval come from the options. Does nothing if the scaler is
  // not enabled. Throws CheckpointError.
  void load_state(const state::View& view);

 private:
  GradScalerOptions options_;
  torch::Tensor scale_;
  torch::Tensor growth_tracker_;
  torch::Tensor found_inf_;
  torch::Tensor num_skipped_;  // int64 scalar
  bool is_unscaled_ = false;
  bool has_stepped_ = false;
};

}  // namespace trainer::amp
