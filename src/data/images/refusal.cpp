#include "data/images/refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iostream>
#include <stdexcept>
#include <streambuf>
#include <string>

namespace trainer::images {
namespace {

using namespace std::string_view_literals;

struct Format {
  size_t offset;
  std::string_view bytes;
  const char* name;
};

// Unsupported formats that may occur in data sets, with the bytes that identify them, and the offset of these bytes.
constexpr std::array kFormats{
    Format{0, "GIF87a"sv, "a GIF image"},
    Format{0, "GIF89a"sv, "a GIF image"},
    Format{4, "ftypavif"sv, "an AVIF image"},
    Format{4, "ftypavis"sv, "an AVIF image"},
    Format{4, "ftyphei"sv, "a HEIC image"},
    Format{4, "ftyphev"sv, "a HEIC image"},
    Format{4, "ftypmif1"sv, "a HEIF image (HEIC or AVIF)"},
    Format{4, "ftypmsf1"sv, "a HEIF image (HEIC or AVIF)"},
    Format{4, "ftyp"sv, "a video (MP4)"},
    Format{0, "\xFF\x0A"sv, "a JPEG XL image"},
    Format{0, "\0\0\0\x0CJXL \r\n\x87\n"sv, "a JPEG XL image"},
    Format{0, "\xFF\x4F\xFF\x51"sv, "a JPEG 2000 image"},
    Format{0, "\0\0\0\x0CjP  \r\n\x87\n"sv, "a JPEG 2000 image"},
    Format{0, "8BPS"sv, "a Photoshop image"},
    Format{0, "\0\0\1\0"sv, "an ICO image"},
    Format{0, "v/1\1"sv, "an OpenEXR image"},
    Format{0, "#?RADIANCE"sv, "a Radiance HDR image"},
    Format{0, "qoif"sv, "a QOI image"},
    Format{0, "DDS "sv, "a DDS image"},
    Format{0, "P1"sv, "a PBM image"},
    Format{0, "P2"sv, "a PGM image of decimal numbers"},
    Format{0, "P3"sv, "a PPM image of decimal numbers"},
    Format{0, "P4"sv, "a PBM image"},
    Format{0, "P7\n"sv, "a PAM image"},
    Format{0, "PF"sv, "a PFM image, whose values are floating-point numbers"},
    Format{0, "Pf"sv, "a PFM image, whose values are floating-point numbers"},
    Format{0, "\x59\xA6\x6A\x95"sv, "a Sun raster image"},
    Format{0, "%PDF"sv, "a PDF document"},
    Format{0, "<svg"sv, "an SVG drawing"},
    Format{0, "<?xml"sv, "an XML document"},
};

// What servers send instead of a file, for example to those who are not logged in.
constexpr std::array kPages{"<!DOCTYPE"sv, "<!doctype"sv, "<html"sv};

}  // namespace

void refuse_grey_16() {
  throw std::runtime_error(
      "it is a 16-bit grey image, and all values above 255 would become white; train with dataset.mode: grey16 (in image_folder and "
      "csv), or convert it to 8 bits");
}

void refuse_no_grey_16() {
  throw std::runtime_error(
      "it is not a 16-bit grey image (PNG, TIFF or PGM), which dataset.mode: grey16 requires; convert it, or choose a different mode");
}

void refuse_but_in_raw(std::string_view form) {
  throw std::runtime_error(fmt::format(
      "it is {}, which RGB cannot represent; train with dataset.mode: raw (in image_folder and csv), which keeps all values, or "
      "convert it to PNG or JPEG",
      form));
}

void refuse_form(std::string_view form) {
  throw std::runtime_error(fmt::format("it is {}, which is not supported; convert it to PNG or JPEG", form));
}

void refuse_format(std::span<const uint8_t> file) {
  for (const auto& format : kFormats) {
    if (has_text(file, format.offset, format.bytes)) refuse_form(format.name);
  }
  if (std::ranges::any_of(kPages, [&](auto begin) { return has_text(file, 0, begin); }))
    throw std::runtime_error("it is an HTML page, not an image: a server probably sent it instead of the file; download the image again");
  throw std::runtime_error(
      "it is not a supported image file (JPEG, PNG, WebP, BMP, TIFF, PGM or PPM), or its beginning is damaged; convert or replace it");
}

namespace {

thread_local bool is_quiet = false;

// Discards the output of threads that have an object of QuietErrors, and forwards the output of all other threads.
class Filter final : public std::streambuf {
 public:
  explicit Filter(std::streambuf* target) : target_(target) {}

 protected:
  int_type overflow(int_type c) override {
    if (is_quiet || traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    return target_->sputc(traits_type::to_char_type(c));
  }
  std::streamsize xsputn(const char* text, std::streamsize count) override { return is_quiet ? count : target_->sputn(text, count); }
  int sync() override { return is_quiet ? 0 : target_->pubsync(); }

 private:
  std::streambuf* target_;
};

// The filter is never destroyed, because std::cerr is used until the process ends.
void install_filter() { [[maybe_unused]] static const auto* const previous = std::cerr.rdbuf(new Filter(std::cerr.rdbuf())); }

}  // namespace

QuietErrors::QuietErrors() {
  install_filter();
  is_quiet = true;
}
QuietErrors::~QuietErrors() { is_quiet = false; }

}  // namespace trainer::images
