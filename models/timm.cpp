#include "models/timm.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <regex>
#include <string_view>
#include <utility>
#include <vector>

namespace trainer::models {
namespace {

// A network and timm's name of it. Networks that compute something else in timm, because of another eps, padding or width, are not here.
constexpr auto kNetworks = std::to_array<std::pair<std::string_view, const char*>>({
    {"resnet18", "resnet18"},
    {"resnet34", "resnet34"},
    {"resnet50", "resnet50"},
    {"resnet101", "resnet101"},
    {"resnet152", "resnet152"},
    {"resnext50_32x4d", "resnext50_32x4d"},
    {"wide_resnet50_2", "wide_resnet50_2"},
    {"vgg11_bn", "vgg11_bn"},
    {"vgg13_bn", "vgg13_bn"},
    {"vgg16_bn", "vgg16_bn"},
    {"vgg19_bn", "vgg19_bn"},
    {"mobilenet_v2", "mobilenetv2_100"},
    {"efficientnet_b0", "efficientnet_b0"},
    {"efficientnet_b1", "efficientnet_b1"},
    {"efficientnet_b2", "efficientnet_b2"},
    {"efficientnet_b3", "efficientnet_b3"},
    {"regnet_y_400mf", "regnety_004"},
    {"regnet_y_1_6gf", "regnety_016"},
    {"convnext_tiny", "convnext_tiny"},
    {"convnext_small", "convnext_small"},
    {"vit_b_16", "vit_base_patch16_224"},
    {"vit_s_16", "vit_small_patch16_224"},
    {"dinov2_s_14", "vit_small_patch14_dinov2"},
    {"dinov2_b_14", "vit_base_patch14_dinov2"},
    {"dinov2_reg4_s_14", "vit_small_patch14_reg4_dinov2"},
    {"dinov2_reg4_b_14", "vit_base_patch14_reg4_dinov2"},
    {"densenet121", "densenet121"},
    {"densenet169", "densenet169"},
});

// Replacements that are made one after another.
class Rules {
 public:
  Rules(std::initializer_list<std::pair<const char*, const char*>> rules) {
    for (const auto& [pattern, text] : rules) rules_.emplace_back(std::regex(pattern), text);
  }
  std::string apply(std::string name) const {
    for (const auto& [pattern, text] : rules_) name = std::regex_replace(name, pattern, text);
    return name;
  }

 private:
  std::vector<std::pair<std::regex, std::string>> rules_;
};

std::string name_in_vgg(const std::string& name) {
  static const Rules kRules = {
      {"^pre_logits\\.fc1", "classifier.0"}, {"^pre_logits\\.fc2", "classifier.3"}, {"^head\\.fc", "classifier.6"}};
  return kRules.apply(name);
}

std::string name_in_vit(const std::string& name) {
  static const Rules kRules = {{"^cls_token", "class_token"},
                               {"^pos_embed", "encoder.pos_embedding"},
                               {"^patch_embed\\.proj", "conv_proj"},
                               {"^norm\\.", "encoder.ln."},
                               {"^head\\.", "heads.head."},
                               {"^blocks\\.(\\d+)\\.", "encoder.layers.encoder_layer_$1."},
                               {"norm([12])", "ln_$1"},
                               {"attn\\.qkv\\.", "self_attention.in_proj_"},
                               {"attn\\.proj", "self_attention.out_proj"},
                               {"mlp\\.fc1", "mlp.0"},
                               {"mlp\\.fc2", "mlp.3"}};
  return kRules.apply(name);
}

std::string name_in_convnext(const std::string& name) {
  static const Rules kRules = {{"^stem", "features.0"},
                               {"^head\\.norm", "classifier.0"},
                               {"^head\\.fc", "classifier.2"},
                               {"conv_dw", "block.0"},
                               {"\\.norm\\.", ".block.2."},
                               {"mlp\\.fc1", "block.3"},
                               {"mlp\\.fc2", "block.5"},
                               {"gamma", "layer_scale"},
                               {"^stages\\.0\\.blocks", "features.1"},
                               {"^stages\\.1\\.d\\w+", "features.2"},
                               {"^stages\\.1\\.blocks", "features.3"},
                               {"^stages\\.2\\.d\\w+", "features.4"},
                               {"^stages\\.2\\.blocks", "features.5"},
                               {"^stages\\.3\\.d\\w+", "features.6"},
                               {"^stages\\.3\\.blocks", "features.7"}};
  return kRules.apply(name);
}

std::string name_in_regnet(const std::string& name) {
  static const Rules kRules = {{"\\.conv\\.", ".0."}, {"\\.bn\\.", ".1."}, {"^conv1", "f.a"},       {"^conv2", "f.b"},
                               {"^conv3", "f.c"},     {"^se\\.", "f.se."}, {"^downsample", "proj"}, {"^head\\.fc", "fc"}};
  static const std::regex kBlock(R"(s(\d)\.b(\d{1,3})\.(.*))");
  std::smatch found;
  if (!std::regex_match(name, found, kBlock)) return kRules.apply(name);
  const auto stage = "block" + found[1].str();
  return "trunk_output." + stage + '.' + stage + '-' + std::to_string(std::stoi(found[2]) - 1) + '.' + kRules.apply(found[3]);
}

// The blocks of the first stage have no expansion.
std::string name_in_efficientnet(const std::string& name) {
  static const Rules kOutside = {{"^conv_stem", "features.0.0"},
                                 {"^bn1", "features.0.1"},
                                 {"^conv_head", "features.8.0"},
                                 {"^bn2", "features.8.1"},
                                 {"^classifier\\.(?!1)", "classifier.1."}};
  static const Rules kFirst = {
      {"conv_dw", "0.0"}, {"bn1", "0.1"}, {"conv_pw", "2.0"}, {"bn2", "2.1"}, {"se\\.conv_reduce", "1.fc1"}, {"se\\.conv_expand", "1.fc2"}};
  static const Rules kOthers = {{"conv_pwl", "3.0"},
                                {"bn3", "3.1"},
                                {"conv_pw", "0.0"},
                                {"bn1", "0.1"},
                                {"conv_dw", "1.0"},
                                {"bn2", "1.1"},
                                {"se\\.conv_reduce", "2.fc1"},
                                {"se\\.conv_expand", "2.fc2"}};
  static const std::regex kBlock(R"(blocks\.(\d)\.(\d{1,3})\.(.*))");
  std::smatch found;
  if (!std::regex_match(name, found, kBlock)) return kOutside.apply(name);
  const int stage = std::stoi(found[1]);
  return "features." + std::to_string(stage + 1) + '.' + found[2].str() + ".block." + (stage == 0 ? kFirst : kOthers).apply(found[3]);
}

// torchvision numbers the blocks of all stages in sequence.
std::string name_in_mobilenet_v2(const std::string& name) {
  constexpr std::array<int, 7> kFirstBlocks = {1, 2, 4, 7, 11, 14, 17};
  static const Rules kHead = {{"^features\\.8", "features.18"}};
  // The convolution and the normalisation of a projection are layers of the block itself.
  static const Rules kProjection = {{"^2\\.0", "1"}, {"^2\\.1", "2"}, {"^3\\.0", "2"}, {"^3\\.1", "3"}};
  static const std::regex kBlock(R"(features\.([1-7])\.(\d{1,3})\.block\.(.*))");
  const auto as_efficientnet = name_in_efficientnet(name);
  std::smatch found;
  if (as_efficientnet == name) return name;
  if (!std::regex_match(as_efficientnet, found, kBlock)) return kHead.apply(as_efficientnet);
  const auto stage = static_cast<size_t>(std::stoi(found[1]) - 1);
  return "features." + std::to_string(kFirstBlocks.at(stage) + std::stoi(found[2])) + ".conv." + kProjection.apply(found[3]);
}

}  // namespace

const char* timm_name_of(const std::string& model) {
  const auto* found = std::ranges::find(kNetworks, std::string_view(model), &std::pair<std::string_view, const char*>::first);
  return found == kNetworks.end() ? nullptr : found->second;
}

std::string name_of_timm_entry(const std::string& model, const std::string& name) {
  // Longer names belong to no network, and could exhaust the stack of std::regex.
  constexpr size_t kLongest = 200;
  if (timm_name_of(model) == nullptr || name.size() > kLongest) return name;
  if (model.starts_with("vgg")) return name_in_vgg(name);
  if (model == "vit_b_16") return name_in_vit(name);
  if (model.starts_with("convnext")) return name_in_convnext(name);
  if (model.starts_with("regnet")) return name_in_regnet(name);
  if (model.starts_with("efficientnet")) return name_in_efficientnet(name);
  if (model == "mobilenet_v2") return name_in_mobilenet_v2(name);
  return name;
}

}  // namespace trainer::models
