#include "models/published_weights.h"

#include <algorithm>
#include <array>
#include <regex>

namespace trainer::models {
namespace {

// From torchvision 0.26's get_model_weights(): acc@1, file size, resize_size, crop_size and interpolation.
constexpr auto kAll = std::to_array<PublishedWeights>({
    {"resnet18", "imagenet1k_v1", "resnet18-f37072fd.pth", 69.758, 44.7, 256, 224, false},
    {"resnet34", "imagenet1k_v1", "resnet34-b627a593.pth", 73.314, 83.3, 256, 224, false},
    {"resnet50", "imagenet1k_v2", "resnet50-11ad3fa6.pth", 80.858, 97.8, 232, 224, false},
    {"resnet50", "imagenet1k_v1", "resnet50-0676ba61.pth", 76.130, 97.8, 256, 224, false},
    {"resnet101", "imagenet1k_v2", "resnet101-cd907fc2.pth", 81.886, 170.5, 232, 224, false},
    {"resnet101", "imagenet1k_v1", "resnet101-63fe2227.pth", 77.374, 170.5, 256, 224, false},
    {"resnet152", "imagenet1k_v2", "resnet152-f82ba261.pth", 82.284, 230.5, 232, 224, false},
    {"resnet152", "imagenet1k_v1", "resnet152-394f9c45.pth", 78.312, 230.4, 256, 224, false},
    {"resnext50_32x4d", "imagenet1k_v2", "resnext50_32x4d-1a0047aa.pth", 81.198, 95.8, 232, 224, false},
    {"resnext50_32x4d", "imagenet1k_v1", "resnext50_32x4d-7cdf4587.pth", 77.618, 95.8, 256, 224, false},
    {"wide_resnet50_2", "imagenet1k_v2", "wide_resnet50_2-9ba9bcbe.pth", 81.602, 263.1, 232, 224, false},
    {"wide_resnet50_2", "imagenet1k_v1", "wide_resnet50_2-95faca4d.pth", 78.468, 131.8, 256, 224, false},
    {"vgg11_bn", "imagenet1k_v1", "vgg11_bn-6002323d.pth", 70.370, 506.9, 256, 224, false},
    {"vgg13_bn", "imagenet1k_v1", "vgg13_bn-abd245e5.pth", 71.586, 507.6, 256, 224, false},
    {"vgg16_bn", "imagenet1k_v1", "vgg16_bn-6c64b313.pth", 73.360, 527.9, 256, 224, false},
    {"vgg19_bn", "imagenet1k_v1", "vgg19_bn-c79401a0.pth", 74.218, 548.1, 256, 224, false},
    {"mobilenet_v2", "imagenet1k_v2", "mobilenet_v2-7ebf99e0.pth", 72.154, 13.6, 232, 224, false},
    {"mobilenet_v2", "imagenet1k_v1", "mobilenet_v2-b0353104.pth", 71.878, 13.6, 256, 224, false},
    {"mobilenet_v3_small", "imagenet1k_v1", "mobilenet_v3_small-047dcff4.pth", 67.668, 9.8, 256, 224, false},
    {"mobilenet_v3_large", "imagenet1k_v2", "mobilenet_v3_large-5c1a4163.pth", 75.274, 21.1, 232, 224, false},
    {"mobilenet_v3_large", "imagenet1k_v1", "mobilenet_v3_large-8738ca79.pth", 74.042, 21.1, 256, 224, false},
    {"efficientnet_b0", "imagenet1k_v1", "efficientnet_b0_rwightman-7f5810bc.pth", 77.692, 20.5, 256, 224, true},
    {"efficientnet_b1", "imagenet1k_v2", "efficientnet_b1-c27df63c.pth", 79.838, 30.1, 255, 240, false},
    {"efficientnet_b1", "imagenet1k_v1", "efficientnet_b1_rwightman-bac287d4.pth", 78.642, 30.1, 256, 240, true},
    {"efficientnet_b2", "imagenet1k_v1", "efficientnet_b2_rwightman-c35c1473.pth", 80.608, 35.2, 288, 288, true},
    {"efficientnet_b3", "imagenet1k_v1", "efficientnet_b3_rwightman-b3899882.pth", 82.008, 47.2, 320, 300, true},
    {"efficientnet_v2_s", "imagenet1k_v1", "efficientnet_v2_s-dd5fe13b.pth", 84.228, 82.7, 384, 384, false},
    {"regnet_y_400mf", "imagenet1k_v2", "regnet_y_400mf-e6988f5f.pth", 75.804, 16.8, 232, 224, false},
    {"regnet_y_400mf", "imagenet1k_v1", "regnet_y_400mf-c65dace8.pth", 74.046, 16.8, 256, 224, false},
    {"regnet_y_800mf", "imagenet1k_v2", "regnet_y_800mf-58fc7688.pth", 78.828, 24.8, 232, 224, false},
    {"regnet_y_800mf", "imagenet1k_v1", "regnet_y_800mf-1b27b58c.pth", 76.420, 24.8, 256, 224, false},
    {"regnet_y_1_6gf", "imagenet1k_v2", "regnet_y_1_6gf-0d7bc02a.pth", 80.876, 43.2, 232, 224, false},
    {"regnet_y_1_6gf", "imagenet1k_v1", "regnet_y_1_6gf-b11a554e.pth", 77.950, 43.2, 256, 224, false},
    {"convnext_tiny", "imagenet1k_v1", "convnext_tiny-983f1562.pth", 82.520, 109.1, 236, 224, false},
    {"convnext_small", "imagenet1k_v1", "convnext_small-0c510722.pth", 83.616, 191.7, 230, 224, false},
    {"vit_b_16", "imagenet1k_v1", "vit_b_16-c867db91.pth", 81.072, 330.3, 256, 224, false},
    {"vit_b_16", "imagenet1k_swag_linear_v1", "vit_b_16_lc_swag-4e70ced5.pth", 81.886, 330.3, 224, 224, true},
    {"densenet121", "imagenet1k_v1", "densenet121-a639ec97.pth", 74.434, 30.8, 256, 224, false},
    {"densenet169", "imagenet1k_v1", "densenet169-b2777c0a.pth", 75.600, 54.7, 256, 224, false},
    {"shufflenet_v2_x1_0", "imagenet1k_v1", "shufflenetv2_x1-5666bf0f80.pth", 69.362, 8.8, 256, 224, false},
    {"squeezenet1_1", "imagenet1k_v1", "squeezenet1_1-b8a52dc0.pth", 58.178, 4.7, 256, 224, false},
});

}  // namespace

std::span<const PublishedWeights> published_weights() { return kAll; }

const PublishedWeights* find_published_weights(const std::string& model, const std::string& name) {
  const auto* found =
      std::ranges::find_if(kAll, [&](const auto& one) { return one.model == model && (name == "default" || one.name == name); });
  return found == kAll.end() ? nullptr : &*found;
}

std::vector<std::string> published_weights_of(const std::string& model) {
  std::vector<std::string> names;
  for (const auto& one : kAll) {
    if (one.model == model) names.emplace_back(one.name);
  }
  return names;
}

std::string current_name_of_entry(const std::string& model, const std::string& name) {
  if (model.starts_with("densenet")) return std::regex_replace(name, std::regex(R"((denselayer\d+\.(?:norm|conv))\.([12]\.))"), "$1$2");
  if (model.starts_with("vit")) {
    return std::regex_replace(std::regex_replace(name, std::regex(R"(\.mlp\.linear_1\.)"), ".mlp.0."), std::regex(R"(\.mlp\.linear_2\.)"),
                              ".mlp.3.");
  }
  return name;
}

}  // namespace trainer::models
