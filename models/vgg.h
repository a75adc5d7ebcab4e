#pragma once
// The plain convolutional networks of Simonyan & Zisserman (2014) with batch normalisation; torchvision's names, shapes and initial
// values (torchvision/models/vgg.py).

#include "models/model.h"

namespace trainer::models {

enum class VggHead { kImagenet, kCifar };

struct VggOptions : config::Options {
  int64_t num_classes = 10;
  VggHead head = VggHead::kImagenet;
  double dropout = 0.5;

  void describe(config::KeyTable& keys) override;
};

std::shared_ptr<Model> vgg11_bn(const VggOptions& options, const BuildContext& context);
std::shared_ptr<Model> vgg13_bn(const VggOptions& options, const BuildContext& context);
std::shared_ptr<Model> vgg16_bn(const VggOptions& options, const BuildContext& context);
std::shared_ptr<Model> vgg19_bn(const VggOptions& options, const BuildContext& context);

}  // namespace trainer::models
