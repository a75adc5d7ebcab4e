#pragma once
// The transforms of an image's size that are not random, which exported networks contain too (export/preprocessing.h).

#include "data/transforms/transform.h"

namespace trainer::data {

// Sizes as torchvision.transforms.Resize computes them (torchvision/transforms/functional.py).
class Resize : public ImageTransform {
 public:
  void describe(KeyTable& keys);
  Frame plan(Frame frame) const override;
  void apply(Picture& picture, SampleRandom& random) const override;

  // One number: that of the shorter edge.
  const SizeKey& size() const { return size_; }
  Interpolation interpolation() const { return interpolation_; }

 private:
  // Of the edge with that length.
  int size_of(int edge, const Frame& frame) const;

  SizeKey size_;
  Interpolation interpolation_ = Interpolation::kBilinear;
};

// Positions as torchvision.transforms.CenterCrop computes them (torchvision/transforms/functional.py).
class CenterCrop : public ImageTransform {
 public:
  void describe(KeyTable& keys);
  Frame plan(Frame) const override { return {size_.height(), size_.width()}; }
  void apply(Picture& picture, SampleRandom& random) const override;

  const SizeKey& size() const { return size_; }

 private:
  SizeKey size_;
};

}  // namespace trainer::data
