#pragma once
// The exponential moving average of a model's parameters over its updates: torch.optim.swa_utils.AveragedModel with
// get_ema_multi_avg_fn. The first update is copied; after that, the average keeps the fraction `decay` of itself, or with warm-up
// min(decay, (1 + n) / (10 + n)) for n = 0, 1, …, like TensorFlow's ExponentialMovingAverage with num_updates. Buffers are not averaged:
// the model's are used.

#include <torch/torch.h>

#include <optional>
#include <vector>

#include "config/sections/training.h"
#include "state/view.h"

namespace trainer::optim {

class Ema {
 public:
  // The parameters must be on one device, of one floating-point dtype, and equal on all ranks. `model` must outlive this object.
  Ema(const torch::nn::Module& model, const config::EmaSection& options);

  Ema(const Ema&) = delete;
  Ema& operator=(const Ema&) = delete;

  // After each Optimizer::step(), with the same `found_inf`: if it is 1, nothing changes. Does not wait for the device.
  void update(const std::optional<torch::Tensor>& found_inf = {});
  // Exchanges the parameters' values and the averages; a second call restores both, bit for bit.
  void swap();

  // AveragedModel's state_dict(): "n_averaged", and the parameters' averages and the model's buffers as "module.<name>". Shares their
  // memory.
  state::Tree state() const;
  // Loads state() or AveragedModel's state_dict(); its buffers are ignored. Throws CheckpointError, with a part loaded, when an average is
  // missing or has another shape or dtype.
  void load_state(const state::View& view);

 private:
  torch::Tensor next_weight() const;

  const torch::nn::Module& model_;
  config::EmaSection options_;
  std::vector<torch::Tensor> params_;
  std::vector<torch::Tensor> averages_;  // in the order and memory layout of params_
  torch::Tensor num_updates_;            // int64 scalar on the device; without skipped updates
};

// While it exists, the model's parameters hold the averages.
class AveragedParameters {
 public:
  explicit AveragedParameters(Ema& ema) : ema_(ema) { ema_.swap(); }
  ~AveragedParameters() { ema_.swap(); }
  AveragedParameters(const AveragedParameters&) = delete;
  AveragedParameters& operator=(const AveragedParameters&) = delete;

 private:
  Ema& ema_;
};

}  // namespace trainer::optim
