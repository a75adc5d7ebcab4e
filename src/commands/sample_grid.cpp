#include "commands/sample_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "input/pipeline.h"
#include "session/random_streams.h"

namespace trainer::commands {
namespace {

constexpr int kMargin = 2;
// Smaller images are enlarged to about this many pixels.
constexpr int kCellWidth = 96;

// The transformed pixels of samples, [height][width][3].
class SampleReader {
 public:
  SampleReader(const config::Experiment& experiment, const input::Dataset& dataset, int64_t epoch)
      : dataset_(dataset),
        pipeline_(without_normalize(experiment.dataset.train_transforms), dataset.info(), {torch::kFloat32, /*channels_last=*/true}),
        seeds_(session::augmentation_seed(experiment), epoch),
        channels_(static_cast<int>(pipeline_.output_shape()[0])),
        height_(static_cast<int>(pipeline_.output_shape()[1])),
        width_(static_cast<int>(pipeline_.output_shape()[2])),
        values_(static_cast<size_t>(channels_ * height_ * width_)) {}

  int height() const { return height_; }
  int width() const { return width_; }

  // Returns its label.
  int64_t read(const input::EpochSample& which) {
    const int64_t index = which.index;
    try {
      const auto sample = dataset_.read(index, scratch_);
      pipeline_.write(sample, seeds_, which, memory_, values_.data());
      return sample.label;
    } catch (const std::runtime_error& error) {
      throw DataError(fmt::format("{}: {}", dataset_.describe(index), error.what()));
    }
  }
  // Channel c of three; grey images have one.
  uint8_t pixel(int y, int x, int c) const {
    const int at = (y * width_ + x) * channels_ + std::min(c, channels_ - 1);
    return static_cast<uint8_t>(std::lround(values_[static_cast<size_t>(at)] * 255.0F));
  }

 private:
  static std::vector<config::ComponentConfig> without_normalize(std::vector<config::ComponentConfig> transforms) {
    std::erase_if(transforms, [](const auto& transform) { return transform.name == "normalize"; });
    return transforms;
  }

  const input::Dataset& dataset_;
  input::Pipeline pipeline_;
  input::EpochSeeds seeds_;
  int channels_;
  int height_;
  int width_;
  std::vector<float> values_;
  input::Scratch scratch_;
  input::PictureMemory memory_;
};

std::string caption_of(int64_t label, const input::DatasetInfo& info) {
  const auto index = static_cast<size_t>(label);
  return index < info.class_names.size() ? info.class_names[index] : fmt::format("{}", label);
}

}  // namespace

input::RgbImage draw_sample_grid(const config::Experiment& experiment, const input::Dataset& dataset, const input::SampleList& samples,
                                 int64_t epoch) {
  const auto count = static_cast<int64_t>(samples.size());
  SampleReader reader(experiment, dataset, epoch);
  const int zoom = std::max(1, kCellWidth / reader.width());
  const int cell_height = reader.height() * zoom + input::kTextHeight + kMargin;
  const int cell_width = reader.width() * zoom + kMargin;
  const auto columns = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(count))));
  const auto rows = static_cast<int>((count + columns - 1) / columns);
  input::RgbImage grid{rows * cell_height + kMargin, columns * cell_width + kMargin, {}};
  grid.pixels.assign(static_cast<size_t>(grid.height) * static_cast<size_t>(grid.width) * 3, 255);
  for (int64_t i = 0; i < count; ++i) {
    const int top = kMargin + static_cast<int>(i) / columns * cell_height;
    const int left = kMargin + static_cast<int>(i) % columns * cell_width;
    const auto label = reader.read(samples[static_cast<size_t>(i)]);
    for (int y = 0; y < reader.height() * zoom; ++y) {
      for (int x = 0; x < reader.width() * zoom; ++x) {
        auto* pixel = &grid.pixels[static_cast<size_t>(((top + y) * grid.width + left + x) * 3)];
        for (int c = 0; c < 3; ++c) pixel[c] = reader.pixel(y / zoom, x / zoom, c);
      }
    }
    input::draw_text(grid, top + reader.height() * zoom, left, caption_of(label, dataset.info()), cell_width - kMargin);
  }
  return grid;
}

}  // namespace trainer::commands
