#include "data/images/refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

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
    Format{4, "ftypavi"sv, "an AVIF image"},
    Format{4, "ftyphe"sv, "a HEIC image"},
    Format{4, "ftypm"sv, "a HEIF image (HEIC or AVIF), or a video (MP4)"},
    Format{4, "ftyp"sv, "a video (MP4)"},
    Format{0, "\xFF\x0A"sv, "a JPEG XL image"},
    Format{0, "\0\0\0\x0CJXL \r\n\x87\n"sv, "a JPEG XL image"},
    Format{0, "\xFF\x4F\xFF\x51"sv, "a JPEG 2000 image"},
    Format{0, "\0\0\0\x0CjP  \r\n\x87\n"sv, "a JPEG 2000 image"},
    Format{0, "8BPS"sv, "a Photoshop image"},
    Format{0, "P1"sv, "a PBM image"},
    Format{0, "P2"sv, "a PGM image of decimal numbers"},
    Format{0, "P3"sv, "a PPM image of decimal numbers"},
    Format{0, "P4"sv, "a PBM image"},
    Format{0, "PF"sv, "a PFM image, whose values are floating-point numbers"},
    Format{0, "Pf"sv, "a PFM image, whose values are floating-point numbers"},
    Format{0, "%PDF"sv, "a PDF document"},
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

}  // namespace trainer::images
