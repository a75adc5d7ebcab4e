#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainer::optim {

// Parameters with a learning rate or a weight decay of their own.
struct ParameterGroupOptions {
  std::vector<std::string> parameters;      // layers and parameters, by their names or the beginnings of them up to a dot
  double lr_factor = 1;                     // on the learning rate of the others
  std::optional<double> weight_decay = {};  // instead of the optimizer's
};

// A linear warm-up before a schedule, which then covers the remaining steps.
struct WarmupOptions {
  int64_t steps = 0;
  double epochs = 0;  // instead of steps
  double start_factor = 0.01;

  // In steps. A warm-up of epochs has at least one.
  int64_t length(int64_t steps_per_epoch) const {
    return epochs == 0 ? steps : std::max<int64_t>(1, std::llround(epochs * static_cast<double>(steps_per_epoch)));
  }
};

// Options of Ema.
struct EmaOptions {
  double decay = 0.999;  // part of the average that is kept in each update, from 0 to below 1
  bool warmup = true;    // keep less at first: (1 + n) / (10 + n) in the n-th update
};

}  // namespace trainer::optim
