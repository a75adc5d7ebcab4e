#include "data/image_file.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <stdexcept>
#include <string>

#include "base/file.h"
#include "data/image_module.h"
#include "data/operations/operations.h"
#include "trainer/error.h"

namespace trainer::data {
namespace {

const ImageModule& load_image_module() {
  // The run path of the library or program that contains this code leads to the module: to the same folder in a build, to lib/trainer after
  // an installation.
  void* library = dlopen("libtrainer_images.so", RTLD_NOW | RTLD_LOCAL);
  const auto entry = library == nullptr ? nullptr : reinterpret_cast<ImageModuleEntry>(dlsym(library, kImageModuleEntry));
  if (entry != nullptr) return *entry();
  throw UsageError(
      fmt::format("image files need OpenCV, but the module that reads them cannot be loaded: {}; unpack the bundle again, or build with "
                  "-DTRAINER_WITH_OPENCV=ON",
                  dlerror()));
}

// Loads the module in the first call, and never closes it.
const ImageModule& image_module() {
  static const ImageModule& module = load_image_module();
  return module;
}

std::vector<uint8_t> encode(const std::filesystem::path& path, const RgbImage& image) {
  std::string refusal;
  std::vector<uint8_t> file;
  if (image_module().encode(path.extension().string(), image, file, refusal)) return file;
  throw UsageError("cannot write " + path.string() + ": " + refusal + "; use a name that ends in .png or .jpg");
}

}  // namespace

void check_image_extension(const std::filesystem::path& path) { encode(path, {1, 1, {0, 0, 0}}); }

void write_image_file(const std::filesystem::path& path, const RgbImage& image) {
  const auto file = encode(path, image);
  write_output_file(path, {reinterpret_cast<const char*>(file.data()), file.size()});
}

ImageView make_grey(std::vector<uint8_t>& pixels, int height, int width) {
  const PixelArray image{.data = pixels.data(), .channels = 3, .height = height, .width = width};
  to_grayscale(image);
  for (size_t i = 0; i < image.num_pixels(); ++i) pixels[i] = pixels[3 * i];
  return ImageView::whole(pixels.data(), 1, height, width, PixelOrder::kInterleaved);
}

namespace {

ImageView decode_pixels(std::span<const uint8_t> file, const ImageDecoding& decoding, std::vector<uint8_t>& pixels) {
  std::string refusal;
  RgbImage image;
  image.pixels.swap(pixels);  // reuses the memory of `pixels`
  if (!image_module().decode(file, decoding.is_turned_upright, image, refusal)) throw std::runtime_error(refusal);
  pixels.swap(image.pixels);
  if (decoding.mode == ImageMode::kGrey) return make_grey(pixels, image.height, image.width);
  return ImageView::whole(pixels.data(), 3, image.height, image.width, PixelOrder::kInterleaved);
}

ImageView decode_values(std::span<const uint8_t> file, const ImageDecoding& decoding, std::vector<float>& values) {
  std::string refusal;
  ValueImage image;
  image.values.swap(values);
  if (!image_module().decode_values(file, decoding, image, refusal)) throw std::runtime_error(refusal);
  values.swap(image.values);
  auto view = ImageView::whole(nullptr, image.channels, image.height, image.width, PixelOrder::kInterleaved);
  view.values = values.data();
  view.maximum = image.maximum;
  return view;
}

}  // namespace

ImageView decode_image(std::span<const uint8_t> file, std::vector<uint8_t>& pixels) { return decode_pixels(file, {}, pixels); }

ImageView decode_image(std::span<const uint8_t> file, const ImageDecoding& decoding, DecodedMemory& memory) {
  return decoding.has_float_pixels() ? decode_values(file, decoding, memory.values) : decode_pixels(file, decoding, memory.pixels);
}

std::optional<Box> find_size(std::span<const uint8_t> file, const ImageDecoding& decoding) {
  if (decoding.has_float_pixels()) return std::nullopt;
  std::string refusal;
  std::optional<Box> size;
  if (!image_module().find_size(file, decoding.is_turned_upright, size, refusal)) throw std::runtime_error(refusal);
  return size;
}

ImageView decode_part(std::span<const uint8_t> file, const Box& part, const ImageDecoding& decoding, std::vector<uint8_t>& pixels) {
  std::string refusal;
  RgbImage image;
  Box decoded = part;
  image.pixels.swap(pixels);
  if (!image_module().decode_part(file, decoded, image, refusal)) throw std::runtime_error(refusal);
  pixels.swap(image.pixels);
  auto view = ImageView::whole(pixels.data(), 3, image.height, image.width, PixelOrder::kInterleaved);
  if (decoding.mode == ImageMode::kGrey) view = make_grey(pixels, image.height, image.width);
  view.top = part.top - decoded.top;
  view.left = part.left - decoded.left;
  view.window_height = part.height;
  view.window_width = part.width;
  return view;
}

ImageTraits find_traits(std::span<const uint8_t> file) { return image_module().read_traits(file); }

std::vector<uint8_t> encode_jpeg(const uint8_t* pixels, int height, int width, int quality) {
  std::string refusal;
  std::vector<uint8_t> file;
  if (!image_module().encode_jpeg(pixels, height, width, quality, file, refusal)) throw std::runtime_error(refusal);
  return file;
}

void draw_text(RgbImage& image, const Box& box, const std::string& text) {
  std::string refusal;
  if (!image_module().draw_text(image, box, text, refusal)) throw std::runtime_error(refusal);
}

void resize_without_antialiasing(const uint8_t* pixels, int height, int width, int new_height, int new_width, uint8_t* out) {
  std::string refusal;
  if (!image_module().resize_linear(pixels, height, width, new_height, new_width, out, refusal)) throw std::runtime_error(refusal);
}

}  // namespace trainer::data
