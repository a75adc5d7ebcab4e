// A part of the training set.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "data/samplers/sampler.h"
#include "trainer/error.h"
#include "trainer/random.h"

namespace trainer::data {
namespace {

// Another permutation than those of the epochs.
constexpr uint64_t kChoice = 0x5355'4253'4554;

struct SubsetOptions : SamplerOptions {
  std::optional<double> fraction;
  std::optional<int64_t> count;

  void describe(KeyTable& keys) {
    keys.add("fraction", fraction,
             {.min = 0,
              .max = 1,
              .min_excluded = true,
              .doc = "Part of the training images, chosen by `seed`. A larger part contains each smaller one. Give this or `count`."});
    keys.add("count", count, {.min = 1, .unit = "images", .doc = "The same as a number of images."});
    keys.refuse("fraction", [this] { return fraction || count ? "" : "missing; give this or dataloader.sampler.count"; });
    keys.refuse("count", [this] { return fraction && count ? "given together with dataloader.sampler.fraction; keep one of them" : ""; });
  }
};

class SubsetSampler : public Sampler {
 public:
  SubsetSampler(std::vector<int64_t> chosen, uint64_t seed) : chosen_(std::move(chosen)), seed_(seed) {}

  int64_t num_samples() const override { return static_cast<int64_t>(chosen_.size()); }
  std::vector<int64_t> order(int64_t epoch) const override {
    auto order = draw_permutation(num_samples(), seed_ + static_cast<uint64_t>(epoch));
    for (auto& position : order) position = chosen_[static_cast<size_t>(position)];
    return order;
  }

 private:
  std::vector<int64_t> chosen_;
  uint64_t seed_;
};

int64_t size_of(const SubsetOptions& options, const SamplerContext& context) {
  const int64_t size = context.dataset.size();
  const int64_t count = options.count ? *options.count : std::llround(*options.fraction * static_cast<double>(size));
  if (count >= 1 && count <= size) return count;
  throw UsageError(options.count ? fmt::format("{}: {} is more than the training set, which has {}; choose at most as many",
                                               context.place_of("count"), count, counted(size, "image"))
                                 : fmt::format("{}: {} of {} leaves none; choose a larger part", context.place_of("fraction"),
                                               *options.fraction, counted(size, "image")));
}

std::unique_ptr<Sampler> make_subset(const SubsetOptions& options, const SamplerContext& context) {
  auto chosen = draw_permutation(context.dataset.size(), mix_seed(context.seed, kChoice));
  chosen.resize(static_cast<size_t>(size_of(options, context)));
  std::ranges::sort(chosen);
  return std::make_unique<SubsetSampler>(std::move(chosen), context.seed);
}

}  // namespace

void add_subset(SamplerRegistry& registry) {
  registry.add<SubsetOptions>("subset", "A part of the training set, the same in every epoch, each sample once in random order.",
                              make_subset);
}

}  // namespace trainer::data
