#pragma once

#include "data/transforms/range.h"
#include "data/transforms/transform.h"
#include "trainer/dataset.h"

namespace trainer::data {

// A random part of an image, with the distribution of torchvision.transforms.RandomResizedCrop (get_params in
// torchvision/transforms/transforms.py). `scale`: its part of the image's area; `ratio`: of its width to its height.
Box draw_resized_crop_box(int height, int width, Range scale, Range ratio, SampleRandom& random);

}  // namespace trainer::data
