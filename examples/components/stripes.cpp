// A data set of grey images of stripes: class 0 horizontal, class 1 vertical.

#include <trainer/registry.h>

namespace {

namespace data = trainer::data;

struct StripesOptions {
  int64_t num_train = 1000;
  int64_t num_validation = 200;

  void describe(trainer::KeyTable& keys) {
    keys.add("num_train", num_train, {.min = 1, .unit = "images", .doc = "Size of the training set."});
    keys.add("num_validation", num_validation, {.min = 1, .unit = "images", .doc = "Size of the validation set."});
  }
};

class Stripes : public data::Dataset {
 public:
  Stripes(data::DatasetInfo info, int64_t size) : info_(std::move(info)), size_(size) {}

  const data::DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return size_; }

  // Loader threads call this at the same time, each with its own scratch.
  data::Sample read(int64_t index, data::Scratch& scratch) const override {
    const int64_t label = index % 2;
    scratch.bytes.clear();
    for (int64_t y = 0; y < kSide; ++y) {
      for (int64_t x = 0; x < kSide; ++x) scratch.bytes.push_back(((label == 0 ? y : x) + index / 2) / 4 % 2 == 0 ? 0 : 255);
    }
    return {.image = data::ImageView::whole(scratch.bytes.data(), 1, kSide, kSide), .target = {.label = label}};
  }

  static constexpr int kSide = 32;

 private:
  data::DatasetInfo info_;
  int64_t size_;
};

}  // namespace

void add_stripes() {
  trainer::register_dataset<StripesOptions>("stripes", "Images of horizontal and vertical stripes.", [](const StripesOptions& options) {
    const data::DatasetInfo info{.shape = {1, Stripes::kSide, Stripes::kSide}, .is_image = true, .num_classes = 2, .num_targets = 1};
    return data::DatasetFactory{.info = info, .open = [info, options](data::Split split, trainer::Logger&) {
                                  return std::make_unique<Stripes>(
                                      info, split == data::Split::kTrain ? options.num_train : options.num_validation);
                                }};
  });
}
