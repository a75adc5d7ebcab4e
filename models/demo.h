#pragma once
// Two tiny networks for a first run, with the shapes that PyTorch's tutorials use.

#include "models/model.h"

namespace trainer::models {

struct DemoLinearOptions : config::Options {
  int64_t in_features = 10;
  int64_t out_features = 10;

  void describe(config::KeyTable& keys) override;
};

struct DemoConvOptions : config::Options {
  int64_t num_classes = 10;

  void describe(config::KeyTable& keys) override;
};

// nn.Linear(in_features, out_features), named fc; input [N, in_features].
std::shared_ptr<Model> demo_linear(const DemoLinearOptions& options, const BuildContext& context);
// nn.Conv2d(3, 16, 3), ReLU, nn.Linear(14400, num_classes), named conv and fc; input [N, 3, 32, 32].
std::shared_ptr<Model> demo_conv(const DemoConvOptions& options, const BuildContext& context);

}  // namespace trainer::models
