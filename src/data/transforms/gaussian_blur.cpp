#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "data/operations/filter.h"
#include "data/transforms/size.h"
#include "data/transforms/transform.h"
#include "trainer/error.h"

namespace trainer::data {
namespace {

class GaussianBlur : public ImageTransform {
 public:
  void describe(KeyTable& keys) {
    keys.add("kernel_size", kernel_size_,
             {.min = 1,
              .max = kMaxPixels,
              .unit = "pixels",
              .doc = "Odd: one number for width and height, or [width, height].",
              .required = true,
              .may_be_one = true});
    keys.refuse("kernel_size", [this]() -> std::string {
      const bool is_odd = std::ranges::all_of(kernel_size_, [](int64_t size) { return size % 2 == 1; });
      if (is_odd && (kernel_size_.size() == 1 || kernel_size_.size() == 2)) return "";
      return "give one odd number, or two: [width, height]";
    });
    keys.add("sigma", sigma_,
             {.min = 0,
              .min_excluded = true,
              .unit = "pixels",
              .doc = "Least and greatest standard deviation, or one number.",
              .may_be_one = true});
    require_number_or_range(keys, "sigma", sigma_);
  }

  Frame plan(Frame frame) const override {
    if (kernel_size_.front() / 2 < frame.width && kernel_size_.back() / 2 < frame.height) return frame;
    throw UsageError(
        fmt::format("transform gaussian_blur: half of kernel_size must be smaller than the image, which has {}", to_string(frame)));
  }

  void apply(Picture& picture, SampleRandom& random) const override {
    const BlurShape shape{static_cast<int>(kernel_size_.front()), static_cast<int>(kernel_size_.back()),
                          random.next_between(sigma_.front(), sigma_.back())};
    const auto pixels = picture.pixels();
    gaussian_blur(pixels, shape, picture.blur_memory(), picture.replace_pixels());
  }

 private:
  std::vector<int64_t> kernel_size_;
  std::vector<double> sigma_ = {0.1, 2.0};
};

}  // namespace

void add_gaussian_blur(TransformRegistry& registry) {
  add_transform<GaussianBlur>(registry, "gaussian_blur", "Blurs the image by a random amount.");
}

}  // namespace trainer::data
