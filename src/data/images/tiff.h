#pragma once
// TIFF files, by libtiff. OpenCV's reader would multiply colours by their transparency and convert inks and 16 bits other than Pillow.

#include <tiffio.h>

#include <cstdarg>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "data/image_module.h"

namespace trainer::images {

bool is_tiff(std::span<const uint8_t> file);

// The first image of the file, turned as the file's orientation says, as Pillow does with TIFF. Throws std::runtime_error with the reason,
// for a form whose pixels would not be Pillow's too.
void decode_tiff(std::span<const uint8_t> file, data::RgbImage& image);
// All samples of that image, which must have 8 or 16 bits without a sign, 16 with one, or be floating-point. Turned and throws as above.
void decode_tiff_values(std::span<const uint8_t> file, data::ValueImage& image);

// Its bits, and the mode that keeps all of it. Throws std::runtime_error with the reason.
void read_tiff_traits(std::span<const uint8_t> file, data::ImageTraits& traits);

// libtiff with the whole file in memory.

class TiffReader {
 public:
  // Throws std::runtime_error with the reason.
  explicit TiffReader(std::span<const uint8_t> file);
  TiffReader(const TiffReader&) = delete;
  TiffReader& operator=(const TiffReader&) = delete;

  TIFF* get() const { return tiff_.get(); }

  // Of strips or tiles.
  uint32_t num_blocks() const { return TIFFIsTiled(get()) != 0 ? TIFFNumberOfTiles(get()) : TIFFNumberOfStrips(get()); }
  // The bytes of a strip or tile in the file.
  std::span<const uint8_t> stored(uint32_t block) const;

  template <class T>
  T field(uint32_t tag, T if_missing) const {
    T value{};
    return TIFFGetFieldDefaulted(get(), tag, &value) == 1 ? value : if_missing;
  }

  // Throws std::runtime_error with libtiff's first message.
  [[noreturn]] void fail() const;

 private:
  static int on_error(TIFF*, void* self, const char*, const char* format, va_list arguments);
  static tmsize_t read(thandle_t self, void* out, tmsize_t count);
  static toff_t seek(thandle_t self, toff_t offset, int origin);
  static toff_t size(thandle_t self) { return static_cast<TiffReader*>(self)->file_.size(); }

  std::span<const uint8_t> file_;
  uint64_t position_ = 0;
  std::string error_;
  std::unique_ptr<TIFF, decltype(&TIFFClose)> tiff_;
};

}  // namespace trainer::images
