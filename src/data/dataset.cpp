#include "data/dataset.h"

#include <cmath>
#include <exception>
#include <mutex>

#include "data/image_file.h"
#include "data/threads.h"

namespace trainer::data {
namespace {

// Welford's algorithm, which stays accurate if the deviation is small compared to the mean.
void add_values(const std::vector<double>& values, TargetSummary& summary, std::vector<double>& squares) {
  summary.mean.resize(values.size());
  squares.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = values[i] - summary.mean[i];
    summary.mean[i] += difference / static_cast<double>(summary.num_samples);
    squares[i] += difference * (values[i] - summary.mean[i]);
  }
}

// Returns why a sample cannot be used, or nullopt if it can.
std::optional<std::string> problem_of(const Dataset& dataset, int64_t index, Scratch& scratch, DecodedMemory& decoded,
                                      const std::function<void(int64_t index, const Sample&, const ImageView& image)>& visit) {
  try {
    dataset.check(index);
    const auto sample = dataset.read(index, scratch);
    const auto image = sample.encoded.empty() ? sample.image : decode_image(sample.encoded, dataset.info().decoding, decoded);
    const auto refusal = refusal_of_label(sample.target, dataset.info());
    if (!refusal.empty()) return refusal;
    if (dataset.info().has_masks) {
      const auto& mask = sample.target.mask;
      check_mask_size(mask, image.height, image.width);
      check_mask_labels({mask.pixels, static_cast<size_t>(mask.height) * static_cast<size_t>(mask.width)}, dataset.info().num_classes);
    }
    if (visit) visit(index, sample, image);
    return std::nullopt;
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

TargetSummary summarize_targets(const Dataset& dataset) {
  const auto& info = dataset.info();
  if (info.has_masks) throw std::logic_error("targets that are masks cannot be summarised");
  TargetSummary summary;
  if (info.num_classes > 0) summary.class_counts.resize(static_cast<size_t>(info.num_classes));
  std::vector<double> squares;
  for (int64_t index = 0; index < dataset.size(); ++index) {
    ++summary.num_samples;
    if (info.has_labels()) {
      const auto label = dataset.label(index);
      // Invalid labels are not counted here, because an error reports them when the sample is read.
      if (refusal_of_label(label, info.num_classes).empty()) ++summary.class_counts[static_cast<size_t>(label)];
      continue;
    }
    const auto values = dataset.target_values(index);
    if (info.is_multi_label) {
      for (size_t label = 0; label < values.size(); ++label) summary.class_counts[label] += values[label] > 0.5 ? 1 : 0;
    } else {
      add_values(values, summary, squares);
    }
  }
  for (const auto square : squares) {
    const double deviation = std::sqrt(square / static_cast<double>(summary.num_samples));
    summary.deviation.push_back(deviation > 0 ? deviation : 1);
  }
  return summary;
}

std::vector<UnreadableSample> find_unreadable_samples(
    const Dataset& dataset, int num_threads, const std::function<bool(int64_t num_read)>& report_progress,
    const std::function<void(int64_t index, const Sample&, const ImageView& image)>& visit) {
  struct Memory {
    Scratch scratch;
    DecodedMemory decoded;
  };
  std::mutex mutex;  // guards the result
  std::vector<UnreadableSample> unreadable;
  const auto report = [&](size_t num_read) { return report_progress(static_cast<int64_t>(num_read)); };
  for_each_in_threads<Memory>(static_cast<size_t>(dataset.size()), num_threads, report, [&](size_t i, Memory& memory) {
    const auto index = static_cast<int64_t>(i);
    if (const auto problem = problem_of(dataset, index, memory.scratch, memory.decoded, visit)) {
      const std::lock_guard lock(mutex);
      unreadable.push_back({index, *problem});
    }
  });
  std::ranges::sort(unreadable, {}, &UnreadableSample::index);
  return unreadable;
}

}  // namespace trainer::data
