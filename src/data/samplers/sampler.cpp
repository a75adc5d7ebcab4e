#include "data/samplers/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>

#include "trainer/error.h"

namespace trainer::data {
namespace {

// torch.multinomial does not accept more weights.
constexpr int64_t kMostWeights = int64_t{1} << 24;

at::Generator make_generator(uint64_t seed) { return at::detail::createCPUGenerator(seed); }

std::vector<int64_t> to_vector(const torch::Tensor& indices) {
  const int64_t* data = indices.const_data_ptr<int64_t>();
  return {data, data + indices.numel()};
}

class WeightedSampler : public Sampler {
 public:
  WeightedSampler(const WeightedDraws& draws, uint64_t seed)
      : weights_(torch::tensor(draws.weights, torch::kFloat64)),
        num_samples_(draws.num_samples),
        replacement_(draws.replacement),
        seed_(seed) {}

  int64_t num_samples() const override { return num_samples_; }
  bool repeats() const override { return replacement_; }
  std::vector<int64_t> order(int64_t epoch) const override {
    return to_vector(at::multinomial(weights_, num_samples_, replacement_, make_generator(seed_ + static_cast<uint64_t>(epoch))));
  }

 private:
  torch::Tensor weights_;
  int64_t num_samples_;
  bool replacement_;
  uint64_t seed_;
};

}  // namespace

void describe_num_samples(KeyTable& keys, std::optional<int64_t>& num_samples) {
  keys.add("num_samples", num_samples,
           {.min = 1,
            .max = std::numeric_limits<int32_t>::max(),  // the order of an epoch is a list in memory
            .unit = "images",
            .doc = "Number of draws per epoch; null: the number of training images."});
}

void check_can_be_weighted(const SamplerContext& context) {
  const int64_t size = context.dataset.size();
  if (size <= kMostWeights) return;
  throw UsageError(fmt::format("{}: the training set has {} samples, but this sampler supports at most {}; choose a different sampler",
                               context.place_of("name"), size, kMostWeights));
}

std::vector<int64_t> draw_permutation(int64_t count, uint64_t seed) {
  return to_vector(torch::randperm(count, make_generator(seed), torch::kLong));
}

std::unique_ptr<Sampler> make_weighted_sampler(WeightedDraws draws, const SamplerContext& context) {
  const auto num_positive = std::ranges::count_if(draws.weights, [](double weight) { return weight > 0; });
  if (!draws.replacement && draws.num_samples > num_positive) {
    throw UsageError(
        fmt::format("{}: {} samples cannot be drawn without replacement, because only {} have a weight other than 0; choose at most {}, "
                    "or set replacement: true",
                    context.place_of("num_samples"), draws.num_samples, num_positive, num_positive));
  }
  return std::make_unique<WeightedSampler>(draws, context.seed);
}

}  // namespace trainer::data
