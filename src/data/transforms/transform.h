#pragma once
// Code that transforms share. A new transform belongs in the file of its family in this folder, or in a new file that is listed in
// src/CMakeLists.txt.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/picture.h"
#include "trainer/dataset.h"
#include "trainer/keys.h"

namespace trainer::data {

// T is an ImageTransform or ErasingTransform.
template <class T>
void add_transform(TransformRegistry& registry, std::string name, std::string doc) {
  registry.add<T>(std::move(name), std::move(doc), [](const T& transform) { return Transform(std::make_shared<const T>(transform)); });
}

// The key `size` of a transform: one number, or [height, width].
class SizeKey {
 public:
  // This object must outlive `keys`.
  void describe(KeyTable& keys, const std::string& doc, bool is_required = true);

  bool is_given() const { return !values_.empty(); }
  bool is_one_number() const { return values_.size() == 1; }
  int height() const { return static_cast<int>(values_.front()); }
  int width() const { return static_cast<int>(values_.back()); }
  std::string text() const;  // "224", or "224 x 160"

 private:
  std::vector<int64_t> values_;
};

// Whether the transform can produce different results for the same image.
bool is_random(const ComponentConfig& component);

struct Range {
  double least = 0;
  double greatest = 0;

  bool operator==(const Range&) const = default;
};

// Refuses `key` unless `values` are [minimum, maximum]. The key must be in the table, and `values` must outlive the table.
void require_range(KeyTable& keys, const std::string& key, const std::vector<double>& values);
// The same, but also allows one number that is not negative.
void require_number_or_range(KeyTable& keys, const std::string& key, const std::vector<double>& values);

// Draws a random box in an image, with the distribution of torchvision.transforms.RandomResizedCrop (get_params in
// torchvision/transforms/transforms.py). `scale`: fraction of the image's area; `ratio`: ratio of width to height.
Box draw_resized_crop_box(int height, int width, Range scale, Range ratio, SampleRandom& random);

}  // namespace trainer::data
