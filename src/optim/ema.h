#pragma once
// The exponential moving average of a model's parameters over its updates: torch.optim.swa_utils.AveragedModel with
// get_ema_multi_avg_fn. The first update is taken as it is; from then on decay keeps its part of the average, under warm-up min(decay,
// (1 + n) / (10 + n)) for n = 0, 1, …, as TensorFlow's ExponentialMovingAverage with num_updates. Buffers are not averaged: those of the
// model stand for them.

#include <torch/torch.h>

#include <optional>
#include <vector>

#include "config/sections/training.h"
#include "state/view.h"

namespace trainer::optim {

class Ema {
 public:
  // Of parameters that are on one device, of one floating type, and alike on all ranks. `model` must outlive it.
  Ema(const torch::nn::Module& model, const config::EmaSection& options);

  Ema(const Ema&) = delete;
  Ema& operator=(const Ema&) = delete;

  // After each Optimizer::step(), with the same `found_inf`: where that is 1, nothing changes. Does not wait for the device.
  void update(const std::optional<torch::Tensor>& found_inf = {});
  // Exchanges the parameters' values and the averages; the second time, both are what they were, bit for bit.
  void swap();

  // AveragedModel's state_dict(): "n_averaged", and the parameters' averages and the model's buffers as "module.<name>". Shares their
  // memory.
  state::Tree state() const;
  // Of its own state or AveragedModel's; buffers stay the model's. Throws CheckpointError, having loaded a part, when one is missing or
  // of another shape or dtype.
  void load_state(const state::View& view);

 private:
  torch::Tensor next_weight() const;

  const torch::nn::Module& model_;
  config::EmaSection options_;
  std::vector<torch::Tensor> params_;
  std::vector<torch::Tensor> averages_;  // in their order and memory layout
  torch::Tensor num_updates_;            // int64 scalar on the device: those that were not skipped
};

// While it lives, the model has the averages as its parameters.
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
