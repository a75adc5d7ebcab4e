// Samples drawn by weights from a file.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string_view>

#include "base/file.h"
#include "base/text.h"
#include "data/samplers/sampler.h"
#include "trainer/error.h"

namespace trainer::data {
namespace {

struct WeightedOptions : SamplerOptions {
  std::string weights;
  std::optional<int64_t> num_samples;
  bool replacement = true;

  std::string file() const override { return weights; }
  void describe(KeyTable& keys) {
    keys.add(
        "weights", weights,
        {.doc = "A text file with one number >= 0 a line for each training image, in the order of the data set's files, also for those "
                "that dataset.validation_split holds out. They need not add up to 1.",
         .required = true,
         .is_path = true,
         .may_be_empty = false});
    describe_num_samples(keys, num_samples);
    keys.add("replacement", replacement, {.doc = "Whether an image can be drawn more than once in an epoch."});
  }
};

double parse_weight(std::string_view line, int64_t number, const std::string& file) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  double weight = 0;
  const auto result = std::from_chars(line.data(), line.data() + line.size(), weight);
  if (result.ec == std::errc() && result.ptr == line.data() + line.size() && std::isfinite(weight) && weight >= 0) return weight;
  throw DataError(fmt::format("{}: line {} has \"{}\"; write one finite number >= 0 in each line", file, number, line));
}

std::vector<double> read_weights(const std::string& file) {
  std::string text;
  try {
    text = read_file(file);
  } catch (const Error& error) {
    throw DataError(fmt::format("{}; name a file with one weight a line", error.what()));
  }
  std::vector<double> weights;
  for (auto rest = without_byte_order_mark(text); !rest.empty();) {
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    weights.push_back(parse_weight(line, static_cast<int64_t>(weights.size()) + 1, file));
  }
  return weights;
}

std::unique_ptr<Sampler> make_weighted(const WeightedOptions& options, const SamplerContext& context) {
  check_can_be_weighted(context);
  const auto& dataset = context.dataset;
  const auto all = read_weights(options.weights);
  if (static_cast<int64_t>(all.size()) != context.files.size()) {
    throw DataError(fmt::format("{}: it has {}, but the training set has {}; write one line for each, in the order of the files",
                                options.weights, counted(all.size(), "line"), counted(context.files.size(), "image")));
  }
  std::vector<double> weights;
  for (int64_t index = 0; index < dataset.size(); ++index) weights.push_back(all[static_cast<size_t>(dataset.index_in_files(index))]);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (sum == 0 || !std::isfinite(sum)) {
    throw DataError(fmt::format("{}: the weights of the training images add up to {}; write {}", options.weights, sum,
                                sum == 0 ? "at least one that is greater than 0" : "smaller ones"));
  }
  return make_weighted_sampler({std::move(weights), options.num_samples.value_or(dataset.size()), options.replacement}, context);
}

}  // namespace

void add_weighted(SamplerRegistry& registry) {
  registry.add<WeightedOptions>("weighted", "Samples drawn by weights from a file, as by WeightedRandomSampler.", make_weighted);
}

}  // namespace trainer::data
