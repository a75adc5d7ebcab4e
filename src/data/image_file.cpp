#include "data/image_file.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

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

// Calls a function of the module, and turns its exceptions into std::runtime_error with only the reason.
template <class Result, class... Parameters, class... Arguments>
Result call(Result (*ImageModule::*function)(Parameters...), Arguments&&... arguments) {
  const auto& module = image_module();
  try {
    return (module.*function)(std::forward<Arguments>(arguments)...);
  } catch (const std::bad_alloc&) {
    throw std::runtime_error("there is not enough memory for its pixels");
  } catch (const std::exception& reason) {
    throw std::runtime_error(reason.what());
  }
}

std::vector<uint8_t> encode(const std::filesystem::path& path, const RgbImage& image) {
  try {
    return call(&ImageModule::encode, path.extension().string(), image.pixels.data(), image.height, image.width, std::nullopt);
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& reason) {
    throw UsageError(fmt::format("cannot write {}: {}; use a name that ends in .png or .jpg", path.string(), reason.what()));
  }
}

// Moves the image's pixels to `pixels`.
ImageView view_of(RgbImage& image, const ImageDecoding& decoding, std::vector<uint8_t>& pixels) {
  pixels.swap(image.pixels);
  if (decoding.mode == ImageMode::kGrey) return make_grey(pixels, image.height, image.width);
  return ImageView::whole(pixels.data(), 3, image.height, image.width, PixelOrder::kInterleaved);
}

ImageView decode_pixels(std::span<const uint8_t> file, const ImageDecoding& decoding, std::vector<uint8_t>& pixels) {
  RgbImage image;
  image.pixels.swap(pixels);  // reuses the memory of `pixels`
  call(&ImageModule::decode, file, decoding.is_turned_upright, image);
  return view_of(image, decoding, pixels);
}

ImageView decode_values(std::span<const uint8_t> file, const ImageDecoding& decoding, std::vector<float>& values) {
  ValueImage image;
  image.values.swap(values);
  call(&ImageModule::decode_values, file, decoding, image);
  values.swap(image.values);
  auto view = ImageView::whole(nullptr, image.channels, image.height, image.width, PixelOrder::kInterleaved);
  view.values = values.data();
  view.maximum = image.maximum;
  return view;
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

ImageView decode_image(std::span<const uint8_t> file, std::vector<uint8_t>& pixels) { return decode_pixels(file, {}, pixels); }

ImageView decode_image(std::span<const uint8_t> file, const ImageDecoding& decoding, DecodedMemory& memory) {
  return decoding.has_float_pixels() ? decode_values(file, decoding, memory.values) : decode_pixels(file, decoding, memory.pixels);
}

std::optional<Box> find_size(std::span<const uint8_t> file, const ImageDecoding& decoding) {
  if (decoding.has_float_pixels()) return std::nullopt;
  return call(&ImageModule::find_size, file, decoding.is_turned_upright);
}

ImageView decode_part(std::span<const uint8_t> file, const Box& part, const ImageDecoding& decoding, std::vector<uint8_t>& pixels) {
  RgbImage image;
  image.pixels.swap(pixels);
  const auto decoded = call(&ImageModule::decode_part, file, part, image);
  auto view = view_of(image, decoding, pixels);
  view.top = part.top - decoded.top;
  view.left = part.left - decoded.left;
  view.window_height = part.height;
  view.window_width = part.width;
  return view;
}

ImageTraits find_traits(std::span<const uint8_t> file) { return call(&ImageModule::read_traits, file); }

std::vector<uint8_t> encode_jpeg(const uint8_t* pixels, int height, int width, int quality) {
  return call(&ImageModule::encode, ".jpg", pixels, height, width, quality);
}

void draw_text(RgbImage& image, const Box& box, const std::string& text) { call(&ImageModule::draw_text, image, box, text); }

void resize_without_antialiasing(const uint8_t* pixels, int height, int width, int new_height, int new_width, uint8_t* out) {
  call(&ImageModule::resize_linear, pixels, height, width, new_height, new_width, out);
}

}  // namespace trainer::data
