// Samples drawn so that all classes are equally frequent.

#include <fmt/format.h>

#include "data/samplers/sampler.h"
#include "trainer/error.h"

namespace trainer::data {
namespace {

struct ClassBalancedOptions : SamplerOptions {
  std::optional<int64_t> num_samples;

  void describe(KeyTable& keys) { describe_num_samples(keys, num_samples); }
  bool needs_classes() const override { return true; }
};

std::unique_ptr<Sampler> make_class_balanced(const ClassBalancedOptions& options, const SamplerContext& context) {
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
  return make_weighted_sampler({std::move(weights), options.num_samples.value_or(dataset.size()), /*replacement=*/true}, context);
}

}  // namespace

void add_class_balanced(SamplerRegistry& registry) {
  registry.add<ClassBalancedOptions>("class_balanced", "Samples drawn with the weight 1 / (size of their class), with replacement.",
                                     make_class_balanced);
}

}  // namespace trainer::data
