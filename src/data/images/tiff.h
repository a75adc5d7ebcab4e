#pragma once
// TIFF files, read with libtiff, because OpenCV multiplies colours by alpha, and converts CMYK and 16-bit values differently from Pillow.

#include <tiffio.h>

#include <cstdarg>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "data/image_module.h"
#include "data/images/traits.h"

namespace trainer::images {

bool is_tiff(std::span<const uint8_t> file);

// Decodes the first image of the file and applies the file's orientation, like Pillow. Throws std::runtime_error with the reason, also for
// kinds of TIFF whose pixels would differ from Pillow's.
void decode_tiff(std::span<const uint8_t> file, data::RgbImage& image);
// Decodes all samples of the first image; they must be uint8, uint16, int16 or floating-point. Otherwise like decode_tiff().
void decode_tiff_values(std::span<const uint8_t> file, data::ValueImage& image, RoundedValues& wide);

// Sets the number of bits and the mode as defined in data::ImageTraits. Throws std::runtime_error with the reason.
void read_tiff_traits(std::span<const uint8_t> file, data::ImageTraits& traits);
// ImageTraits::pages, for which the whole file is searched. Throws std::runtime_error with the reason.
int64_t count_pages(std::span<const uint8_t> file);

// libtiff with the whole file in memory.

class TiffReader {
 public:
  // Throws std::runtime_error with the reason.
  explicit TiffReader(std::span<const uint8_t> file);
  TiffReader(const TiffReader&) = delete;
  TiffReader& operator=(const TiffReader&) = delete;

  TIFF* get() const { return tiff_.get(); }

  // The number of strips or tiles.
  uint32_t num_blocks() const { return TIFFIsTiled(get()) != 0 ? TIFFNumberOfTiles(get()) : TIFFNumberOfStrips(get()); }
  // Returns the bytes of a strip or tile as they are stored in the file.
  std::span<const uint8_t> stored(uint32_t block) const;

  template <class T>
  T field(uint32_t tag, T if_missing) const {
    T value{};
    return TIFFGetFieldDefaulted(get(), tag, &value) == 1 ? value : if_missing;
  }

  // Throws std::runtime_error with libtiff's first message.
  [[noreturn]] void fail() const;

 private:
  static int on_error(TIFF*, void* self, const char* module, const char* format, va_list arguments);
  static tmsize_t read(thandle_t self, void* out, tmsize_t count);
  static toff_t seek(thandle_t self, toff_t offset, int origin);
  static toff_t size(thandle_t self) { return static_cast<TiffReader*>(self)->file_.size(); }

  std::span<const uint8_t> file_;
  uint64_t position_ = 0;
  std::string error_;
  std::unique_ptr<TIFF, decltype(&TIFFClose)> tiff_;
};

}  // namespace trainer::images
