#include "session/image_reader.h"

#include <fmt/format.h>

#include "config/reader.h"
#include "data/image_file.h"
#include "data/operations/color.h"
#include "datasets/image_files.h"
#include "trainer/error.h"

namespace trainer::session {
namespace {

const data::DatasetInfo& require_images(const data::DatasetInfo& samples) {
  const bool is_readable = samples.is_image && samples.shape.size() == 3 && (samples.shape[0] == 1 || samples.shape[0] == 3);
  if (!is_readable) throw UsageError("the network was not trained on grey or colour images, so that image files cannot be its input");
  return samples;
}

data::DatasetInfo of_any_size(data::DatasetInfo samples) {
  samples.shape = {samples.shape[0], data::kAnySize, data::kAnySize};
  return samples;
}

std::vector<ComponentConfig> with_size(const data::DatasetInfo& samples, std::vector<ComponentConfig> transforms) {
  if (samples.shape[1] == data::kAnySize) return transforms;
  const auto resize = fmt::format("[{{resize: {{size: [{}, {}]}}}}]", samples.shape[1], samples.shape[2]);
  transforms.insert(transforms.begin(), config::read_components(resize, "the size of an image", data::transform_registry()).front());
  return transforms;
}

// [height][width] of the same memory as the pixels, [height][width][3].
data::ImageView make_grey(std::vector<uint8_t>& pixels, int height, int width) {
  const data::PixelArray image{.data = pixels.data(), .channels = 3, .height = height, .width = width};
  data::to_grayscale(image);
  for (size_t i = 0; i < image.num_pixels(); ++i) pixels[i] = pixels[3 * i];
  return data::ImageView::whole(pixels.data(), 1, height, width);
}

}  // namespace

ImageReader::ImageReader(const data::DatasetInfo& samples, std::vector<ComponentConfig> transforms, data::BatchLayout layout)
    : is_grey_(require_images(samples).shape[0] == 1), pipeline_(with_size(samples, std::move(transforms)), of_any_size(samples), layout) {}

void ImageReader::read(const std::string& path, Memory& memory, void* out) const {
  const auto file = datasets::read_bytes(path, memory.file);
  data::Sample sample;
  if (is_grey_) {
    const auto image = data::decode_image(file, memory.pixels);
    sample.image = make_grey(memory.pixels, image.height, image.width);
  } else {
    sample.encoded = file;
  }
  pipeline_.write(sample, {/*seed=*/0, /*number=*/0}, {/*index=*/0}, memory.picture, out);
}

}  // namespace trainer::session
