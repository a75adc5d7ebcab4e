#pragma once
// Weights of the networks that torchvision has published, trained on ImageNet-1k.

#include <span>
#include <string>
#include <vector>

namespace trainer::models {

struct PublishedWeights {
  const char* model;
  const char* name;  // "imagenet1k_v2", torchvision's in lower case
  const char* file;  // its name ends with the first digits of its SHA-256 sum: "resnet18-f37072fd.pth"
  double top1;       // on ImageNet's validation set, as torchvision publishes it, in percent
  double size;       // in MiB
  // What the images were transformed by: the shorter edge resized, and the middle cut out.
  int resize;
  int crop;
  bool is_bicubic;  // how it was resized; otherwise bilinearly
};

inline constexpr const char* kPublishedWeightsUrl = "https://download.pytorch.org/models/";

// By network, the default ones of each first.
std::span<const PublishedWeights> published_weights();
// Of that network, by its name or "default"; nullptr: there are none.
const PublishedWeights* find_published_weights(const std::string& model, const std::string& name);
std::vector<std::string> published_weights_of(const std::string& model);

// The name that an entry of such a file, by which older versions of torchvision called it, has in the network.
std::string current_name_of_entry(const std::string& model, const std::string& name);

}  // namespace trainer::models
