#include "models/registry.h"

#include "models/cifar_resnet.h"
#include "models/demo.h"
#include "models/resnet.h"
#include "models/vgg.h"
#include "models/wide_resnet.h"

namespace trainer::models {

const std::vector<ModelEntry>& registry() {
  static const std::vector<ModelEntry> entries = {
      model_entry<DemoLinearOptions>("demo_linear", "One linear layer, for a first run on synthetic data.", demo_linear),
      model_entry<DemoConvOptions>("demo_conv", "One convolution and one linear layer, for a first run on 32×32 images.", demo_conv),
      model_entry<CifarResNetOptions>("resnet20", "Residual network for 32×32 images, 20 layers, 0.27 million parameters.", resnet20),
      model_entry<CifarResNetOptions>("resnet32", "Residual network for 32×32 images, 32 layers, 0.46 million parameters.", resnet32),
      model_entry<CifarResNetOptions>("resnet44", "Residual network for 32×32 images, 44 layers, 0.66 million parameters.", resnet44),
      model_entry<CifarResNetOptions>("resnet56", "Residual network for 32×32 images, 56 layers, 0.85 million parameters.", resnet56),
      model_entry<ResNetOptions>("resnet18", "torchvision's resnet18, 11 million parameters.", resnet18),
      model_entry<ResNetOptions>("resnet34", "torchvision's resnet34, 21 million parameters.", resnet34),
      model_entry<ResNetOptions>("resnet50", "torchvision's resnet50, 24 million parameters.", resnet50),
      model_entry<ResNetOptions>("resnet101", "torchvision's resnet101, 43 million parameters.", resnet101),
      model_entry<ResNetOptions>("resnet152", "torchvision's resnet152, 58 million parameters.", resnet152),
      model_entry<WideResNetOptions>("wide_resnet", "Wide residual network for 32×32 images; by default WRN-28-10, 36 million parameters.",
                                     wide_resnet),
      model_entry<VggOptions>("vgg11_bn", "torchvision's vgg11_bn, 129 million parameters, 9 million with the cifar head.", vgg11_bn),
      model_entry<VggOptions>("vgg13_bn", "torchvision's vgg13_bn, 129 million parameters, 9 million with the cifar head.", vgg13_bn),
      model_entry<VggOptions>("vgg16_bn", "torchvision's vgg16_bn, 134 million parameters, 15 million with the cifar head.", vgg16_bn),
      model_entry<VggOptions>("vgg19_bn", "torchvision's vgg19_bn, 140 million parameters, 20 million with the cifar head.", vgg19_bn),
  };
  return entries;
}

config::Family model_family() {
  config::Family family;
  for (const ModelEntry& entry : registry()) family.push_back(entry.kind);
  return family;
}

std::shared_ptr<Model> make_model(const config::Part& part, const BuildContext& context) {
  for (const ModelEntry& entry : registry()) {
    if (entry.kind.name == part.name) return entry.make(*part.options, context);
  }
  TORCH_CHECK(false, "no model is called ", part.name);
}

}  // namespace trainer::models
