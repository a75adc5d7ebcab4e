#include "datasets/synthetic.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <utility>

#include "trainer/random.h"

namespace trainer::datasets {
namespace {

constexpr int64_t kMaxValues = int64_t{1} << 28;
// The order of an epoch is a list of all samples in memory, so their number must be limited.
constexpr double kMostSamples = std::numeric_limits<int32_t>::max();
constexpr double kMostClasses = std::numeric_limits<int32_t>::max();

// A fast generator, because samples are not kept in memory: each read generates its sample again.
class SampleRandom {
 public:
  explicit SampleRandom(uint64_t seed) : state_(seed) {}

  uint64_t next() { return next_splitmix64(state_); }

  // Uniform in [-sqrt(3), sqrt(3)]: mean 0, variance 1.
  void fill(std::span<float> values) {
    size_t i = 0;
    for (; i + 1 < values.size(); i += 2) {
      const uint64_t bits = next();
      values[i] = unit_variance(static_cast<uint32_t>(bits));
      values[i + 1] = unit_variance(static_cast<uint32_t>(bits >> 32));
    }
    if (i < values.size()) values[i] = unit_variance(static_cast<uint32_t>(next()));
  }

 private:
  static float unit_variance(uint32_t bits) {
    return static_cast<float>(static_cast<int32_t>(bits)) * (0x1.0p-31F * std::numbers::sqrt3_v<float>);
  }

  uint64_t state_;
};

int64_t num_values(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const auto length : shape) product *= length;
  return product;
}

class Synthetic : public data::Dataset {
 public:
  Synthetic(data::DatasetInfo info, const SyntheticOptions& options, data::Split split)
      : info_(std::move(info)),
        size_(split == data::Split::kTrain ? options.num_train : options.num_validation),
        seed_(mix_seed(static_cast<uint64_t>(options.seed), split == data::Split::kTrain ? 0 : 1)),
        labels_(options.labels),
        num_values_(static_cast<size_t>(num_values(info_.shape))) {}

  const data::DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return size_; }
  data::Target target(int64_t index, data::Scratch& scratch) const override {
    if (info_.num_classes == 0) return read(index, scratch).target;
    SampleRandom random(mix_seed(seed_, static_cast<uint64_t>(index)));
    return {.label = draw_label(random)};
  }

  data::Sample read(int64_t index, data::Scratch& scratch) const override {
    SampleRandom random(mix_seed(seed_, static_cast<uint64_t>(index)));
    const auto num_targets = info_.num_classes > 0 ? size_t{0} : static_cast<size_t>(info_.num_targets);
    // Drawn first, so that the label does not depend on the shape.
    const int64_t label = draw_label(random);
    scratch.values.resize(num_targets + num_values_);
    random.fill(scratch.values);
    const std::span<const float> all(scratch.values);
    scratch.targets.assign(all.begin(), all.begin() + static_cast<ptrdiff_t>(num_targets));
    return {.values = all.subspan(num_targets), .target = {.label = label, .values = scratch.targets}};
  }

 private:
  int64_t draw_label(SampleRandom& random) const {
    const auto label = random.next() % static_cast<uint64_t>(info_.num_classes > 0 ? info_.num_classes : 1);
    return labels_ == SyntheticLabels::kRandom ? static_cast<int64_t>(label) : 0;
  }

  data::DatasetInfo info_;
  int64_t size_;
  uint64_t seed_;
  SyntheticLabels labels_;
  size_t num_values_;
};

}  // namespace

void SyntheticOptions::describe(KeyTable& keys) {
  keys.add("num_train", num_train, {.min = 1, .max = kMostSamples, .unit = "samples", .doc = "Number of training samples."});
  keys.add("num_validation", num_validation, {.min = 1, .max = kMostSamples, .unit = "samples", .doc = "Number of validation samples."});
  keys.add("shape", shape, {.min = 1, .max = 65536, .doc = "Shape of a sample: [channels, height, width], or [features]."});
  keys.add("num_classes", num_classes,
           {.min = 0, .max = kMostClasses, .doc = "Number of classes; 0: the targets are `num_targets` random numbers."});
  keys.add_choice<SyntheticLabels>("labels", labels, {{"random", SyntheticLabels::kRandom}, {"zero", SyntheticLabels::kZero}},
                                   {.doc = "The label of a sample. random: a class drawn at random; zero: always class 0."});
  keys.add("num_targets", num_targets, {.min = 1, .max = 65536, .doc = "Length of the target if num_classes is 0."});
  keys.add("seed", seed, {.min = 0, .doc = "Seed of the samples."});
  keys.refuse("shape", [this]() -> std::string {
    if (shape.size() != 1 && shape.size() != 3) {
      return fmt::format("has {} dimensions; give [channels, height, width] or [features]", shape.size());
    }
    if (num_values(shape) <= kMaxValues) return "";
    return fmt::format("{} values are too many for one sample; use at most {}", num_values(shape), kMaxValues);
  });
  keys.refuse("num_targets", [this]() -> std::string {
    if (num_classes == 0 || num_targets == 1) return "";
    return fmt::format("{} contradicts dataset.num_classes={}; for targets that are numbers, set dataset.num_classes=0", num_targets,
                       num_classes);
  });
  keys.refuse("labels", [this] {
    const bool has_labels = num_classes > 0 || labels == SyntheticLabels::kRandom;
    return has_labels ? "" : "the value zero needs classes, but dataset.num_classes is 0; remove this key";
  });
}

data::DatasetInfo synthetic_info(const SyntheticOptions& options) {
  return {.shape = options.shape, .is_image = false, .num_classes = options.num_classes, .num_targets = options.num_targets};
}

std::unique_ptr<data::Dataset> open_synthetic(const SyntheticOptions& options, data::Split split) {
  return std::make_unique<Synthetic>(synthetic_info(options), options, split);
}

void add_synthetic(DatasetRegistry& registry) {
  registry.add<SyntheticOptions>("synthetic", "Random numbers of any shape, with random classes or targets.",
                                 [](const SyntheticOptions& options) -> data::DatasetFactory {
                                   return {.info = synthetic_info(options),
                                           .open = [options](data::Split split, Logger&) { return open_synthetic(options, split); },
                                           .sizes = data::SplitSizes{options.num_train, options.num_validation}};
                                 });
}

}  // namespace trainer::datasets
