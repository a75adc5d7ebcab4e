#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>

#include "base/file.h"
#include "base/text.h"
#include "data/samplers/sampler.h"
#include "trainer/error.h"
#include "trainer/random.h"

namespace trainer::data {
namespace {

// The draws are the same as in PyTorch 2.11 with a CPU generator.

// torch.multinomial does not accept more weights.
constexpr int64_t kMostWeights = int64_t{1} << 24;

at::Generator make_generator(uint64_t seed) { return at::detail::createCPUGenerator(seed); }

std::vector<int64_t> to_vector(const torch::Tensor& indices) {
  const int64_t* data = indices.const_data_ptr<int64_t>();
  return {data, data + indices.numel()};
}

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

// `weights`: one for each sample of the training set, finite and at least 0. Draws like torch.utils.data.WeightedRandomSampler
// (pytorch/torch/utils/data/sampler.py) with a generator seeded with seed + epoch in each epoch.
Sampler make_weighted_sampler(const std::vector<double>& weights, std::optional<int64_t> given_number, bool replacement,
                              const SamplerContext& context) {
  const int64_t num_samples = given_number.value_or(context.dataset.size());
  const auto num_positive = std::ranges::count_if(weights, [](double weight) { return weight > 0; });
  if (!replacement && num_samples > num_positive) {
    throw UsageError(
        fmt::format("{}: {} samples cannot be drawn without replacement, because only {} have a weight other than 0; choose at most {}, "
                    "or set replacement: true",
                    context.place_of("num_samples"), num_samples, num_positive, num_positive));
  }
  const auto order = [tensor = torch::tensor(weights, torch::kFloat64), num_samples, replacement, seed = context.seed](int64_t epoch) {
    return to_vector(at::multinomial(tensor, num_samples, replacement, make_generator(seed + static_cast<uint64_t>(epoch))));
  };
  return {num_samples, order, replacement};
}

// Each sample once, in the order of torch.utils.data.DistributedSampler (pytorch/torch/utils/data/distributed.py).
struct ShuffledOptions : SamplerOptions {
  void describe(KeyTable&) {}
};

Sampler make_shuffled(const ShuffledOptions&, const SamplerContext& context) {
  const auto size = context.dataset.size();
  return {size, [size, seed = context.seed](int64_t epoch) { return draw_permutation(size, seed + static_cast<uint64_t>(epoch)); }};
}

// Samples drawn by weights from a file.
struct WeightedOptions : SamplerOptions {
  std::string weights;
  std::optional<int64_t> num_samples;
  bool replacement = true;

  std::string file() const override { return weights; }
  void describe(KeyTable& keys) {
    keys.add("weights", weights,
             {.doc = "A text file with one number >= 0 per line, one line per training image in the order of the data set's files, "
                     "including images that dataset.validation_split or dataset.split holds out. The numbers need not add up to 1.",
              .required = true,
              .is_path = true,
              .may_be_empty = false});
    keys.set_facts("weights", {});  // resuming compares the content of the file instead
    describe_num_samples(keys, num_samples);
    keys.add("replacement", replacement, {.doc = "Whether an image can be drawn more than once in an epoch."});
  }
};

double parse_weight(std::string_view line, int64_t number, const std::string& file) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (const auto weight = parse_number<double>(line); weight && std::isfinite(*weight) && *weight >= 0) return *weight;
  throw DataError(fmt::format("{}: line {} has \"{}\"; write one finite number >= 0 in each line", file, number, line));
}

std::vector<double> read_weights(const std::string& file) {
  std::string text;
  try {
    text = read_file(file);
  } catch (const Error& error) {
    throw DataError(fmt::format("{}; set weights to a file with one weight per line", error.what()));
  }
  std::vector<double> weights;
  for (auto rest = without_byte_order_mark(text); !rest.empty();) {
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    weights.push_back(parse_weight(line, static_cast<int64_t>(weights.size()) + 1, file));
  }
  return weights;
}

Sampler make_weighted(const WeightedOptions& options, const SamplerContext& context) {
  check_can_be_weighted(context);
  const auto& dataset = context.dataset;
  const auto all = read_weights(options.weights);
  if (static_cast<int64_t>(all.size()) != context.files.size()) {
    throw DataError(fmt::format("{}: it has {}, but the training set has {}; write one line per image, in the order of the files",
                                options.weights, counted(all.size(), "line"), counted(context.files.size(), "image")));
  }
  std::vector<double> weights;
  for (int64_t index = 0; index < dataset.size(); ++index) weights.push_back(all[static_cast<size_t>(dataset.origin(index).index)]);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (sum == 0 || !std::isfinite(sum)) {
    throw DataError(fmt::format("{}: the weights of the training images add up to {}; write {}", options.weights, sum,
                                sum == 0 ? "at least one weight greater than 0" : "smaller weights"));
  }
  return make_weighted_sampler(weights, options.num_samples, options.replacement, context);
}

// Samples drawn so that all classes are equally frequent on average.
struct ClassBalancedOptions : SamplerOptions {
  std::optional<int64_t> num_samples;

  void describe(KeyTable& keys) { describe_num_samples(keys, num_samples); }
  bool needs_classes() const override { return true; }
};

Sampler make_class_balanced(const ClassBalancedOptions& options, const SamplerContext& context) {
  check_can_be_weighted(context);
  const auto& dataset = context.dataset;
  std::vector<size_t> labels;
  const int64_t num_classes = dataset.info().num_classes;
  std::vector<int64_t> class_sizes(static_cast<size_t>(num_classes));
  for (int64_t index = 0; index < dataset.size(); ++index) {
    const int64_t label = dataset.label(index);
    const auto refusal = refusal_of_label(label, num_classes);
    if (!refusal.empty()) throw DataError(fmt::format("{}: {}", dataset.describe(index), refusal));
    labels.push_back(static_cast<size_t>(label));
    ++class_sizes[labels.back()];
  }
  std::vector<double> weights;
  for (const size_t label : labels) weights.push_back(1.0 / static_cast<double>(class_sizes[label]));
  return make_weighted_sampler(weights, options.num_samples, /*replacement=*/true, context);
}

// Mixed into the seed, so that the permutation that chooses the subset differs from those of the epochs.
constexpr uint64_t kChoice = 0x5355'4253'4554;

struct SubsetOptions : SamplerOptions {
  std::optional<double> fraction;
  std::optional<int64_t> count;

  void describe(KeyTable& keys) {
    keys.add("fraction", fraction,
             {.min = 0,
              .max = 1,
              .min_excluded = true,
              .doc = "Fraction of the training images, chosen by `seed`. A larger fraction contains all images of a smaller one. Set this "
                     "or `count`."});
    keys.add("count", count, {.min = 1, .unit = "images", .doc = "Number of training images, instead of `fraction`."});
    keys.refuse("fraction", [this] { return fraction || count ? "" : "missing; give this or dataloader.sampler.count"; });
    keys.refuse("count", [this] { return fraction && count ? "given together with dataloader.sampler.fraction; keep one of them" : ""; });
  }
};

int64_t size_of(const SubsetOptions& options, const SamplerContext& context) {
  const int64_t size = context.dataset.size();
  const int64_t count = options.count ? *options.count : std::llround(*options.fraction * static_cast<double>(size));
  if (count >= 1 && count <= size) return count;
  throw UsageError(options.count ? fmt::format("{}: {} is too large, because the training set has only {}; choose a smaller number",
                                               context.place_of("count"), count, counted(size, "image"))
                                 : fmt::format("{}: {} of {} is less than one image; choose a larger fraction",
                                               context.place_of("fraction"), *options.fraction, counted(size, "image")));
}

Sampler make_subset(const SubsetOptions& options, const SamplerContext& context) {
  auto chosen = draw_permutation(context.dataset.size(), mix_seed(context.seed, kChoice));
  chosen.resize(static_cast<size_t>(size_of(options, context)));
  std::ranges::sort(chosen);
  const auto size = static_cast<int64_t>(chosen.size());
  return {size, [chosen = std::move(chosen), size, seed = context.seed](int64_t epoch) {
            auto order = draw_permutation(size, seed + static_cast<uint64_t>(epoch));
            for (auto& position : order) position = chosen[static_cast<size_t>(position)];
            return order;
          }};
}

// Repeats each sample several times in a row in the order that all ranks share, so that a step uses several augmentations of the sample.
// The order is that of RASampler (vision/references/classification/sampler.py); Hoffer et al., "Augment your batch" (CVPR 2020). An epoch
// is about as long as the training set, so it contains only some of the samples.
struct RepeatedAugmentationOptions : SamplerOptions {
  int64_t repeats = 3;

  void describe(KeyTable& keys) {
    keys.add("repeats", repeats, {.min = 1, .unit = "times", .doc = "Number of times that each image is repeated in a row."});
  }
};

Sampler make_repeated_augmentation(const RepeatedAugmentationOptions& options, const SamplerContext& context) {
  const auto size = context.dataset.size();
  // RASampler rounds down to a multiple of 256. A smaller set is not rounded, because no samples would be left.
  const auto num_samples = size < 256 ? size : size / 256 * 256;
  const auto draw = [repeats = static_cast<size_t>(options.repeats), size, num_samples, seed = context.seed](int64_t epoch) {
    const auto each_once = draw_permutation(size, seed + static_cast<uint64_t>(epoch));
    std::vector<int64_t> order(static_cast<size_t>(num_samples));
    for (size_t i = 0; i < order.size(); ++i) order[i] = each_once[i / repeats];
    return order;
  };
  return {num_samples, draw, /*repeats=*/true};
}

}  // namespace

std::vector<int64_t> draw_permutation(int64_t count, uint64_t seed) {
  return to_vector(torch::randperm(count, make_generator(seed), torch::kLong));
}

void add_samplers(SamplerRegistry& registry) {
  registry.add<ShuffledOptions>("shuffled", "Each sample once per epoch, in random order.", make_shuffled);
  registry.add<WeightedOptions>("weighted", "Samples drawn by weights from a file, as by WeightedRandomSampler.", make_weighted);
  registry.add<ClassBalancedOptions>("class_balanced", "Samples drawn with weight 1 / (size of their class), with replacement.",
                                     make_class_balanced);
  registry.add<SubsetOptions>("subset", "A fixed part of the training set; each sample once per epoch, in random order.", make_subset);
  registry.add<RepeatedAugmentationOptions>("repeated_augmentation",
                                            "Some of the samples in each epoch, each several times in a row with different augmentations.",
                                            make_repeated_augmentation);
}

}  // namespace trainer::data
