#pragma once
// The transforms that change an image's size and are not random. Exported networks contain them too (export/interface.h).

#include <cstdint>
#include <vector>

#include "data/transforms/transform.h"

namespace trainer::data {

// Computes sizes like torchvision.transforms.v2.Resize (torchvision/transforms/functional.py).
class Resize : public ImageTransform, public ResizeOptions {
 public:
  void describe(KeyTable& keys);
  Frame plan(Frame frame) const override;
  bool fits_all_depths() const override { return true; }
  void apply(Picture& picture, SampleRandom& random) const override;
};

// Fits the whole image into a frame of a given size, like Pillow's ImageOps.pad.
class Letterbox : public ImageTransform {
 public:
  void describe(KeyTable& keys);
  Frame plan(Frame) const override { return {size_.height(), size_.width()}; }
  bool fits_all_depths() const override { return fill_ == 0; }
  void apply(Picture& picture, SampleRandom& random) const override;

  const Size& size() const { return size_; }
  int64_t fill() const { return fill_; }
  Interpolation interpolation() const { return interpolation_; }

 private:
  Size size_;
  int64_t fill_ = 0;
  Interpolation interpolation_ = Interpolation::kBilinear;
};

// Like torchvision.transforms.Pad.
class Pad : public ImageTransform {
 public:
  void describe(KeyTable& keys);
  Frame plan(Frame frame) const override;
  bool fits_all_depths() const override { return fill_ == 0; }
  void apply(Picture& picture, SampleRandom& random) const override;

  struct Margins {
    int left = 0;
    int top = 0;
    int right = 0;
    int bottom = 0;
  };
  Margins margins() const;
  int64_t fill() const { return fill_; }
  Padding mode() const { return mode_; }

 private:
  std::vector<int64_t> padding_;
  int64_t fill_ = 0;
  Padding mode_ = Padding::kZero;
};

// Computes positions like torchvision.transforms.CenterCrop (torchvision/transforms/functional.py).
class CenterCrop : public ImageTransform, public CenterCropOptions {
 public:
  void describe(KeyTable& keys);
  Frame plan(Frame) const override { return {size.height(), size.width()}; }
  bool fits_all_depths() const override { return true; }
  void apply(Picture& picture, SampleRandom& random) const override;
};

}  // namespace trainer::data
