#pragma once
// The small residual networks for 32×32 images of He et al., "Deep Residual Learning for Image Recognition" (2015), section 4.2:
// 6n + 2 layers, 16, 32 and 64 channels, and shortcuts without weights (option A).

#include "models/model.h"

namespace trainer::models {

struct CifarResNetOptions : config::Options {
  int64_t num_classes = 10;

  void describe(config::KeyTable& keys) override;
};

std::shared_ptr<Model> resnet20(const CifarResNetOptions& options, const BuildContext& context);
std::shared_ptr<Model> resnet32(const CifarResNetOptions& options, const BuildContext& context);
std::shared_ptr<Model> resnet44(const CifarResNetOptions& options, const BuildContext& context);
std::shared_ptr<Model> resnet56(const CifarResNetOptions& options, const BuildContext& context);

}  // namespace trainer::models
