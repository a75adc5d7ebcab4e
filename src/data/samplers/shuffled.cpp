// Each sample once, in the order of torch.utils.data.DistributedSampler (pytorch/torch/utils/data/distributed.py).

#include "data/samplers/sampler.h"

namespace trainer::data {
namespace {

struct ShuffledOptions : SamplerOptions {
  void describe(KeyTable&) {}
};

class Shuffled : public Sampler {
 public:
  Shuffled(int64_t num_samples, uint64_t seed) : num_samples_(num_samples), seed_(seed) {}

  int64_t num_samples() const override { return num_samples_; }
  std::vector<int64_t> order(int64_t epoch) const override { return draw_permutation(num_samples_, seed_ + static_cast<uint64_t>(epoch)); }

 private:
  int64_t num_samples_;
  uint64_t seed_;
};

}  // namespace

void add_shuffled(SamplerRegistry& registry) {
  registry.add<ShuffledOptions>("shuffled", "Each sample once in an epoch, in random order.", [](const auto&, const auto& context) {
    return std::make_unique<Shuffled>(context.dataset.size(), context.seed);
  });
}

}  // namespace trainer::data
