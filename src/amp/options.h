#pragma once

#include <cstdint>

namespace trainer::amp {

// Options of GradScaler, those of torch.amp.GradScaler.
struct GradScalerOptions {
  double init_scale = 65536;       // what the loss is multiplied by at first
  double growth_factor = 2;        // > 1
  double backoff_factor = 0.5;     // between 0 and 1
  int64_t growth_interval = 2000;  // steps without an overflow before the scale grows
};

}  // namespace trainer::amp
