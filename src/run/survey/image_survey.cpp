#include "run/survey/image_survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <thread>

#include "data/picture.h"
#include "data/pipeline.h"
#include "data/threads.h"
#include "trainer/error.h"

namespace trainer::survey {
namespace {

struct Unreadable {
  int64_t count = 0;
  int64_t first = -1;  // index
  std::string reason;  // of the first one
};

struct Memory {
  data::Scratch scratch;
  data::PictureMemory picture;
  std::vector<float> values;
};

// Calls read(sample, position in the list of indices, memory) for the samples, on one thread per CPU thread. Returns the number of
// unreadable samples, for which Dataset::read() or `read` throws a std::runtime_error that is not an Error, and the first of them. Other
// exceptions are rethrown.
template <class Read>
Unreadable read_samples(const data::Dataset& dataset, const std::vector<int64_t>& indices, const ReportProgress& report, const Read& read) {
  std::mutex mutex;  // guards the result
  Unreadable unreadable;
  const auto report_all = [&](size_t num_done) {
    if (report) report(static_cast<int64_t>(std::min(num_done, indices.size())));
    return true;
  };
  const auto num_threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  data::for_each_in_threads<Memory>(indices.size(), num_threads, report_all, [&](size_t i, Memory& memory) {
    try {
      read(dataset.read(indices[i], memory.scratch), i, memory);
    } catch (const Error&) {
      throw;
    } catch (const std::runtime_error& error) {
      const std::lock_guard lock(mutex);
      if (unreadable.count++ > 0 && indices[i] > unreadable.first) return;
      unreadable.first = indices[i];
      unreadable.reason = error.what();
    }
  });
  return unreadable;
}

}  // namespace

ImageSizes find_sizes(const data::Dataset& dataset, const std::vector<int64_t>& indices, recipe::ImageNotes& notes,
                      const ReportProgress& report) {
  std::vector<ImageSize> sizes(indices.size());
  const auto unreadable = read_samples(dataset, indices, report, [&](const data::Sample& sample, size_t position, Memory& memory) {
    if (sample.encoded.empty()) {
      sizes[position] = {sample.image.window_height, sample.image.window_width};
    } else {
      const data::Picture picture(sample.encoded, memory.picture, dataset.info().decoding);
      sizes[position] = {picture.height(), picture.width()};
    }
    notes.add(indices[position], sample);
  });
  std::erase(sizes, ImageSize{});
  const auto first = unreadable.count == 0 ? "" : fmt::format("{}: {}", dataset.describe(unreadable.first), unreadable.reason);
  return {.sizes = std::move(sizes), .num_unreadable = unreadable.count, .first_unreadable = first};
}

PixelStatistics measure_pixels(const data::Dataset& dataset, const std::vector<int64_t>& indices,
                               const std::vector<ComponentConfig>& transforms, const ReportProgress& report) {
  const data::Pipeline pipeline(transforms, dataset.info(), {torch::kFloat32, /*channels_last=*/false});
  const auto& shape = pipeline.output_shape();
  const auto num_channels = static_cast<size_t>(shape[0]);
  const auto plane = static_cast<size_t>(shape[1] * shape[2]);
  // The sums and the sums of squares for each image and channel. They are added in the order of the images, so that the results do not
  // depend on the threads.
  std::vector<double> sums(indices.size() * num_channels), squares(sums.size());
  const auto unreadable = read_samples(dataset, indices, report, [&](const data::Sample& sample, size_t position, Memory& memory) {
    memory.values.resize(num_channels * plane);
    pipeline.write(sample, data::EpochSeeds(0, 0), {indices[position]}, memory.picture, memory.values.data());
    for (size_t c = 0; c < num_channels; ++c) {
      for (size_t i = 0; i < plane; ++i) {
        const double pixel = memory.values[c * plane + i];
        sums[position * num_channels + c] += pixel;
        squares[position * num_channels + c] += pixel * pixel;
      }
    }
  });
  PixelStatistics statistics{.num_images = static_cast<int64_t>(indices.size()) - unreadable.count};
  if (statistics.num_images == 0) throw DataError(fmt::format("{}: {}", dataset.describe(unreadable.first), unreadable.reason));
  const double count = static_cast<double>(plane) * static_cast<double>(statistics.num_images);
  for (size_t c = 0; c < num_channels; ++c) {
    double sum = 0, square = 0;
    for (size_t i = c; i < sums.size(); i += num_channels) {
      sum += sums[i];
      square += squares[i];
    }
    const double mean = sum / count;
    statistics.mean.push_back(mean);
    statistics.std.push_back(std::sqrt(std::max(square / count - mean * mean, 0.0)));
  }
  return statistics;
}

}  // namespace trainer::survey
