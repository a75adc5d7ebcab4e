#include "trainer/inference.h"

namespace trainer::task {
namespace {

using Forward = std::function<torch::Tensor(const torch::Tensor&)>;

// The mean of the outputs for an image and its mirror image.
torch::Tensor mean_of_both_sides(const torch::Tensor& images, const Forward& forward) {
  const auto outputs = forward(images);
  const auto dtype = c10::promoteTypes(outputs.scalar_type(), torch::kFloat32);
  const auto mirrored = forward(images.flip(-1).contiguous(images.suggest_memory_format()));
  return (outputs.to(dtype) + mirrored.to(dtype)) * 0.5;
}

// Pads the images by reflection, like random_crop with padding_mode reflect, and crops them to their original size at (`top`, `left`).
torch::Tensor crop_of_padded(const torch::Tensor& images, int64_t top, int64_t left) {
  return at::reflection_pad2d(images, {1, 1, 1, 1})
      .narrow(2, top, images.size(2))
      .narrow(3, left, images.size(3))
      .contiguous(images.suggest_memory_format());
}

}  // namespace

torch::Tensor average_over_views(const torch::Tensor& images, TestTimeAugmentation tta, const Forward& forward) {
  if (tta == TestTimeAugmentation::kNone) return forward(images);
  auto unshifted = mean_of_both_sides(images, forward);
  if (tta == TestTimeAugmentation::kFlip) return unshifted;
  const auto top_left = mean_of_both_sides(crop_of_padded(images, 0, 0), forward);
  const auto bottom_right = mean_of_both_sides(crop_of_padded(images, 2, 2), forward);
  return (unshifted + (top_left + bottom_right) * 0.5) * 0.5;
}

}  // namespace trainer::task
