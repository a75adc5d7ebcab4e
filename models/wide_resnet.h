#pragma once
// Wide residual networks for 32×32 images: Zagoruyko & Komodakis, "Wide Residual Networks" (2016), with pre-activation blocks and
// dropout between their convolutions. WRN-28-10 is depth 28, width 10.

#include "models/model.h"

namespace trainer::models {

struct WideResNetOptions : config::Options {
  int64_t depth = 28;
  int64_t width = 10;
  int64_t num_classes = 10;
  double dropout = 0.0;

  void describe(config::KeyTable& keys) override;
};

// Throws UsageError when depth is not 6n + 4.
std::shared_ptr<Model> wide_resnet(const WideResNetOptions& options, const BuildContext& context);

}  // namespace trainer::models
