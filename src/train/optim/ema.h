#pragma once
// The exponential moving average of a model's parameters over its updates: torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn.
// The first update copies the parameters; each later one computes decay * average + (1 - decay) * parameters. With warm-up, decay is
// min(decay, (1 + n) / (10 + n)) for n = 0, 1, …, as in TensorFlow's ExponentialMovingAverage with num_updates. Buffers are not averaged:
// the averaged model has the model's current buffers.

#include <optional>
#include <vector>

#include "trainer/options.h"
#include "trainer/state.h"
#include "trainer/torch.h"

namespace trainer::optim {

class Ema {
 public:
  // The parameters must be on one device, of one floating type and equal on all ranks. `model` must outlive this object.
  Ema(const torch::nn::Module& model, const EmaOptions& options);

  Ema(const Ema&) = delete;
  Ema& operator=(const Ema&) = delete;

  // To be called after each Optimizer::step() with the same `found_inf`; if that is 1, nothing changes. Does not wait for the device.
  void update(const std::optional<torch::Tensor>& found_inf = {});
  // Swaps the parameters' values and the averages. A second call restores both bit for bit.
  void swap();

  // AveragedModel's state_dict(): "n_averaged", and the parameters' averages and the model's buffers as "module.<name>". Shares memory with
  // the averages and the buffers.
  state::Tree state() const;
  // Loads what state() or AveragedModel's state_dict() returned; the model's buffers do not change. Throws CheckpointError when an entry is
  // missing or has another shape or dtype; some entries may have been loaded by then.
  void load_state(const state::View& view);

 private:
  torch::Tensor next_weight() const;

  const torch::nn::Module& model_;
  EmaOptions options_;
  std::vector<torch::Tensor> params_;
  std::vector<torch::Tensor> averages_;  // in the order and memory layout of params_
  torch::Tensor num_updates_;            // int64 scalar on the device, without skipped updates
};

// During its lifetime, the model's parameters hold the averages.
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
