#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>

#include "data/dataset.h"
#include "data/image_file.h"
#include "data/threads.h"

namespace trainer::data {
namespace {

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
      auto problem = refusal_of_size(mask, image.height, image.width);
      const auto num_pixels = static_cast<size_t>(mask.height) * static_cast<size_t>(mask.width);
      if (problem.empty()) problem = refusal_of_labels({mask.pixels, num_pixels}, dataset.info().num_classes);
      if (!problem.empty()) return problem;
    }
    if (visit) visit(index, sample, image);
    return std::nullopt;
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

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
