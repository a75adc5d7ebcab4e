#pragma once
// Weights that torchvision has published for the classes of ImageNet-1k.

#include <span>
#include <string>
#include <vector>

namespace trainer::models {

struct PublishedWeights {
  const char* model;
  const char* name;  // torchvision's in lower case, such as "imagenet1k_v2"
  const char* file;  // its name ends with the first digits of its SHA-256 checksum, such as "resnet18-f37072fd.pth"
  double top1;       // accuracy on ImageNet's validation set as published by torchvision, in percent
  double size;       // in MiB
  // The transforms of the images: the shorter edge was resized to `resize`, and the centre cropped to `crop`.
  int resize;
  int crop;
  bool is_bicubic;  // the interpolation of the resize; false: bilinear
};

inline constexpr const char* kPublishedWeightsUrl = "https://download.pytorch.org/models/";

// Grouped by network; the default weights of each network come first.
std::span<const PublishedWeights> published_weights();
// The weights `name` of the network `model`; "default": its first ones; nullptr: there are none.
const PublishedWeights* find_published_weights(const std::string& model, const std::string& name);
std::vector<std::string> published_weights_of(const std::string& model);

// Maps the name of a file's entry, which may be from an older version of torchvision, to the name in the network.
std::string current_name_of_entry(const std::string& model, const std::string& name);

}  // namespace trainer::models
