#include <vector>

#include "data/transforms/augmentation.h"
#include "data/transforms/size.h"
#include "data/transforms/transform.h"

namespace trainer::data {
namespace {

class RandomRotation : public ImageTransform {
 public:
  void describe(KeyTable& keys) {
    keys.add("degrees", degrees_,
             {.min = -360,
              .max = 360,
              .unit = "degrees",
              .doc = "Least and greatest angle, counter-clockwise; or one number x for [-x, x].",
              .required = true,
              .may_be_one = true});
    require_number_or_range(keys, "degrees", degrees_);
  }

  Frame plan(Frame frame) const override { return frame; }
  bool moves_pixels() const override { return true; }

  void apply(Picture& picture, SampleRandom& random) const override {
    const double least = degrees_.size() == 1 ? -degrees_.front() : degrees_.front();
    rotate(picture, random.next_between(least, degrees_.back()));
  }

 private:
  std::vector<double> degrees_;
};

}  // namespace

void add_random_rotation(TransformRegistry& registry) {
  add_transform<RandomRotation>(registry, "random_rotation",
                                "Rotates the image about its middle by a random angle, without interpolation. Its size stays the "
                                "same, and what comes from outside is black.");
}

}  // namespace trainer::data
