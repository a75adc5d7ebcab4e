#pragma once
// Residual networks with torchvision's names, shapes and initial values (torchvision/models/resnet.py); its bottleneck strides in
// the 3×3 convolution.

#include "models/model.h"

namespace trainer::models {

enum class ResNetStem { kImagenet, kCifar };

struct ResNetOptions : config::Options {
  int64_t num_classes = 10;
  ResNetStem stem = ResNetStem::kImagenet;
  bool zero_init_last_norm = false;
  double dropout = 0.0;

  void describe(config::KeyTable& keys) override;
};

std::shared_ptr<Model> resnet18(const ResNetOptions& options, const BuildContext& context);
std::shared_ptr<Model> resnet34(const ResNetOptions& options, const BuildContext& context);
std::shared_ptr<Model> resnet50(const ResNetOptions& options, const BuildContext& context);
std::shared_ptr<Model> resnet101(const ResNetOptions& options, const BuildContext& context);
std::shared_ptr<Model> resnet152(const ResNetOptions& options, const BuildContext& context);

}  // namespace trainer::models
