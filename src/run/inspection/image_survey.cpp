#include "run/inspection/image_survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "data/image_file.h"
#include "data/picture.h"
#include "data/pipeline.h"
#include "trainer/error.h"

namespace trainer::inspection {
namespace {

struct Unreadable {
  int64_t count = 0;
  int64_t first = -1;  // index
  std::string reason;  // of the first one
};

// Makes one thread's function, which receives each sample and its position in the list of indices.
using MakeReader = std::function<std::function<void(const data::Sample&, size_t position)>()>;

// Reads the samples on one thread per CPU thread, each with a function of its own, made by `make_reader`. Returns the number of unreadable
// samples, for which Dataset::read() or that function throws a std::runtime_error that is not an Error, and the first of them. Other
// exceptions are rethrown.
Unreadable read_samples(const data::Dataset& dataset, const std::vector<int64_t>& indices, const ReportProgress& report,
                        const MakeReader& make_reader) {
  std::atomic<size_t> next = 0;
  std::atomic<size_t> num_done = 0;
  std::mutex mutex;  // guards the two variables below
  Unreadable unreadable;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      const auto read = make_reader();
      data::Scratch scratch;
      for (size_t i = next++; i < indices.size(); i = next++) {
        try {
          read(dataset.read(indices[i], scratch), i);
        } catch (const Error&) {
          throw;
        } catch (const std::runtime_error& error) {
          const std::lock_guard lock(mutex);
          if (unreadable.count++ == 0 || indices[i] < unreadable.first) {
            unreadable.first = indices[i];
            unreadable.reason = error.what();
          }
        }
        ++num_done;
      }
    } catch (...) {
      next = indices.size();
      num_done = indices.size();
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;  // joined at the end of this block
    for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
    while (num_done < indices.size()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (report) report(static_cast<int64_t>(std::min(num_done.load(), indices.size())));
    }
  }
  if (failure) std::rethrow_exception(failure);
  return unreadable;
}

}  // namespace

ImageSizes find_sizes(const data::Dataset& dataset, const std::vector<int64_t>& indices, session::ImageNotes& notes,
                      const ReportProgress& report) {
  std::vector<ImageSize> sizes(indices.size());
  const auto unreadable = read_samples(dataset, indices, report, [&] {
    return [&, memory = std::make_shared<data::PictureMemory>()](const data::Sample& sample, size_t position) {
      if (sample.encoded.empty()) {
        sizes[position] = {sample.image.window_height, sample.image.window_width};
      } else {
        const data::Picture picture(sample.encoded, *memory, dataset.info().decoding);
        sizes[position] = {picture.height(), picture.width()};
      }
      notes.add(indices[position], sample);
    };
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
  const auto unreadable = read_samples(dataset, indices, report, [&] {
    struct Memory {
      data::PictureMemory picture;
      std::vector<float> values;
    };
    auto memory = std::make_shared<Memory>();
    memory->values.resize(num_channels * plane);
    return [&, memory](const data::Sample& sample, size_t position) {
      pipeline.write(sample, data::EpochSeeds(0, 0), {indices[position]}, memory->picture, memory->values.data());
      for (size_t c = 0; c < num_channels; ++c) {
        for (size_t i = 0; i < plane; ++i) {
          const double pixel = memory->values[c * plane + i];
          sums[position * num_channels + c] += pixel;
          squares[position * num_channels + c] += pixel * pixel;
        }
      }
    };
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

}  // namespace trainer::inspection
