// Each sample several times in a row in the order that all ranks share, so that a batch has several augmentations of it: the order of
// RASampler (vision/references/classification/sampler.py); Hoffer et al., "Augment your batch" (CVPR 2020). An epoch is about as long as
// the training set, so it has a part of the samples.

#include "data/samplers/sampler.h"

namespace trainer::data {
namespace {

struct RepeatedAugmentationOptions : SamplerOptions {
  int64_t repeats = 3;

  void describe(KeyTable& keys) { keys.add("repeats", repeats, {.min = 1, .unit = "times", .doc = "How often an image comes in a row."}); }
};

class RepeatedAugmentation : public Sampler {
 public:
  RepeatedAugmentation(int64_t repeats, int64_t size, uint64_t seed) : repeats_(repeats), size_(size), seed_(seed) {}

  // RASampler rounds down to a multiple of 256, which leaves nothing of a smaller set.
  int64_t num_samples() const override { return size_ < 256 ? size_ : size_ / 256 * 256; }
  bool repeats() const override { return true; }
  std::vector<int64_t> order(int64_t epoch) const override {
    const auto each_once = draw_permutation(size_, seed_ + static_cast<uint64_t>(epoch));
    std::vector<int64_t> order(static_cast<size_t>(num_samples()));
    for (size_t i = 0; i < order.size(); ++i) order[i] = each_once[i / static_cast<size_t>(repeats_)];
    return order;
  }

 private:
  int64_t repeats_;
  int64_t size_;
  uint64_t seed_;
};

}  // namespace

void add_repeated_augmentation(SamplerRegistry& registry) {
  registry.add<RepeatedAugmentationOptions>(
      "repeated_augmentation", "Some samples in each epoch, each several times in a row with other augmentations.",
      [](const auto& options, const auto& context) {
        return std::make_unique<RepeatedAugmentation>(options.repeats, context.dataset.size(), context.seed);
      });
}

}  // namespace trainer::data
