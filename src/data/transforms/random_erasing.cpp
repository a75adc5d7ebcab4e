// Boxes with the distribution of torchvision.transforms.RandomErasing (get_params in torchvision/transforms/transforms.py).

#include <cmath>
#include <vector>

#include "data/transforms/size.h"
#include "data/transforms/transform.h"

namespace trainer::data {
namespace {

constexpr int kTries = 10;

class RandomErasing : public ErasingTransform {
 public:
  void describe(KeyTable& keys) {
    keys.add("p", p_, {.min = 0, .max = 1, .doc = "Probability that a part is erased."});
    keys.add("scale", scale_, {.min = 0, .max = 1, .doc = "Least and greatest part of the image's area."});
    keys.add("ratio", ratio_, {.min = 0, .min_excluded = true, .doc = "Least and greatest ratio of height to width."});
    require_range(keys, "scale", scale_);
    require_range(keys, "ratio", ratio_);
  }

  Box draw_box(int height, int width, SampleRandom& random) const override {
    if (!random.next_bool(p_)) return {};
    for (int i = 0; i < kTries; ++i) {
      const double area = static_cast<double>(height) * width * random.next_between(scale_.front(), scale_.back());
      const double ratio = std::exp(random.next_between(std::log(ratio_.front()), std::log(ratio_.back())));
      // Python's round: halves to the even number.
      const int box_height = static_cast<int>(std::nearbyint(std::sqrt(area * ratio)));
      const int box_width = static_cast<int>(std::nearbyint(std::sqrt(area / ratio)));
      if (box_height >= height || box_width >= width) continue;
      const auto top = random.next_below(static_cast<uint32_t>(height - box_height + 1));
      const auto left = random.next_below(static_cast<uint32_t>(width - box_width + 1));
      return {static_cast<int>(top), static_cast<int>(left), box_height, box_width};
    }
    return {};
  }

 private:
  double p_ = 0.5;
  std::vector<double> scale_ = {0.02, 0.33};
  std::vector<double> ratio_ = {0.3, 3.3};
};

}  // namespace

void add_random_erasing(TransformRegistry& registry) {
  add_transform<RandomErasing>(
      registry, "random_erasing",
      "Sets a part of random size, proportions and place to 0 in what the network sees, with probability p; after normalize.");
}

}  // namespace trainer::data
