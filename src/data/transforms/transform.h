#pragma once
// Code that transforms share. A new transform belongs in the file of its family in this folder, or in a new file that is listed in
// src/CMakeLists.txt.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/picture.h"
#include "trainer/components.h"
#include "trainer/dataset.h"
#include "trainer/keys.h"

namespace trainer::data {

// T is an ImageTransform or ErasingTransform.
template <class T>
void add_transform(TransformRegistry& registry, std::string name, std::string doc) {
  registry.add<T>(std::move(name), std::move(doc), [](const T& transform) { return Transform(std::make_shared<const T>(transform)); });
}

// Adds the key `size` of a transform: one number, or [height, width]. `size` must outlive `keys`.
void describe_size(KeyTable& keys, Size& size, const std::string& doc, bool is_required = true);
std::string to_string(const Size& size);  // "224", or "224 x 160"

// Whether the transform can produce different results for the same image.
bool is_random(const ComponentConfig& component);

struct Range {
  double least = 0;
  double greatest = 0;

  bool operator==(const Range&) const = default;
};

// Refuses `key` unless `values` are [minimum, maximum], or with `may_be_number` one number that is not negative. The key must be in the
// table, and `values` must outlive the table.
void require_range(KeyTable& keys, const std::string& key, const std::vector<double>& values, bool may_be_number = false);

// Like Python's round(), rounds half to even.
int rounded(double value);

// Draws a box whose area is in the range `scale`, as a fraction of the image's area, and whose ratio is in the range `ratio`; empty if it
// may not lie in the image after ten tries. Like get_params() of RandomResizedCrop (with `is_crop`) or RandomErasing in
// torchvision/transforms/transforms.py: the former has a ratio of width to height and allows boxes as high or wide as the image, the latter
// has a ratio of height to width.
std::optional<Box> draw_box_in(int height, int width, Range scale, Range ratio, bool is_crop, SampleRandom& random);
// For RandomResizedCrop.
Box draw_resized_crop_box(int height, int width, Range scale, Range ratio, SampleRandom& random);

}  // namespace trainer::data
