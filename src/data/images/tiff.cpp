#include <fmt/format.h>
#include <tiffio.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/images/formats.h"
#include "data/images/orientation.h"
#include "data/images/refusal.h"

namespace trainer::images {
namespace {

// libtiff with the whole file in memory.
class TiffReader {
 public:
  explicit TiffReader(std::span<const uint8_t> file) : file_(file), tiff_(nullptr, TIFFClose) {
    constexpr size_t kMemoryBesideFile = size_t{64} << 20;
    const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> options(TIFFOpenOptionsAlloc(), TIFFOpenOptionsFree);
    TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), static_cast<tmsize_t>(file.size() + kMemoryBesideFile));
    TIFFOpenOptionsSetErrorHandlerExtR(options.get(), &TiffReader::on_error, this);
    TIFFOpenOptionsSetWarningHandlerExtR(
        options.get(), [](TIFF*, void*, const char*, const char*, va_list) { return 1; }, nullptr);
    const auto do_not_write = [](thandle_t, void*, tmsize_t) -> tmsize_t { return 0; };
    const auto do_not_map = [](thandle_t, void**, toff_t*) { return 0; };
    const auto size = [](thandle_t self) -> toff_t { return static_cast<TiffReader*>(self)->file_.size(); };
    tiff_.reset(TIFFClientOpenExt(
        "", "r", this, &TiffReader::read, do_not_write, &TiffReader::seek, [](thandle_t) { return 0; }, size, do_not_map,
        [](thandle_t, void*, toff_t) {}, options.get()));
    if (!tiff_) fail();
  }
  TiffReader(const TiffReader&) = delete;
  TiffReader& operator=(const TiffReader&) = delete;

  TIFF* get() const { return tiff_.get(); }

  // The number of strips or tiles.
  uint32_t num_blocks() const { return TIFFIsTiled(get()) != 0 ? TIFFNumberOfTiles(get()) : TIFFNumberOfStrips(get()); }
  // Returns the bytes of a strip or tile as they are stored in the file.
  std::span<const uint8_t> stored(uint32_t block) const {
    const auto begin = std::min<uint64_t>(TIFFGetStrileOffset(get(), block), file_.size());
    return file_.subspan(begin, std::min<uint64_t>(TIFFGetStrileByteCount(get(), block), file_.size() - begin));
  }

  template <class T>
  T field(uint32_t tag, T if_missing) const {
    T value{};
    return TIFFGetFieldDefaulted(get(), tag, &value) == 1 ? value : if_missing;
  }
  uint16_t compression() const { return field<uint16_t>(TIFFTAG_COMPRESSION, COMPRESSION_NONE); }
  std::string name_of_compression() const {
    const auto* const codec = TIFFFindCODEC(compression());
    return codec != nullptr ? codec->name : std::to_string(compression());
  }
  bool has_separate_planes() const { return field<uint16_t>(TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG) == PLANARCONFIG_SEPARATE; }
  uint16_t orientation() const { return field<uint16_t>(TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT); }

  // Throws std::runtime_error with libtiff's first message.
  [[noreturn]] void fail() const {
    throw std::runtime_error(fmt::format("it is damaged, or a kind of TIFF that is not supported: {}; convert or replace it",
                                         error_.empty() ? "its header has values that do not fit together" : error_));
  }

 private:
  static int on_error(TIFF*, void* self, const char* module, const char* format, va_list arguments) {
    auto& error = static_cast<TiffReader*>(self)->error_;
    if (!error.empty()) return 1;  // only the first error names the cause
    std::array<char, 256> text{};
    std::vsnprintf(text.data(), text.size(), format, arguments);
    // Some messages begin with the name of the file, which is empty.
    std::string_view reason(text.data());
    if (reason.starts_with(": ")) reason.remove_prefix(2);
    error = fmt::format("libtiff: {}{}{}", module == nullptr ? "" : module, module == nullptr || *module == '\0' ? "" : ": ", reason);
    return 1;
  }
  static tmsize_t read(thandle_t self, void* out, tmsize_t count) {
    auto& reader = *static_cast<TiffReader*>(self);
    const auto begin = std::min<uint64_t>(reader.position_, reader.file_.size());
    const auto length = std::min<uint64_t>(static_cast<uint64_t>(std::max<tmsize_t>(count, 0)), reader.file_.size() - begin);
    std::memcpy(out, reader.file_.data() + begin, length);
    reader.position_ = begin + length;
    return static_cast<tmsize_t>(length);
  }
  static toff_t seek(thandle_t self, toff_t offset, int origin) {
    auto& reader = *static_cast<TiffReader*>(self);
    reader.position_ = offset + (origin == SEEK_CUR ? reader.position_ : origin == SEEK_END ? reader.file_.size() : 0);
    return reader.position_;
  }

  std::span<const uint8_t> file_;
  uint64_t position_ = 0;
  std::string error_;
  std::unique_ptr<TIFF, decltype(&TIFFClose)> tiff_;
};

using Rgb = std::array<uint8_t, 3>;

enum class Colours { kTable, kRgb, kCmyk };

struct Form {
  uint32_t width = 0;
  uint32_t height = 0;
  uint16_t bits = 0;     // per sample
  uint16_t samples = 0;  // per pixel
  bool has_planes = false;
  uint16_t num_planes = 1;     // number of planes that are read
  bool is_multiplied = false;  // whether the colours are multiplied by alpha
  Colours colours = Colours::kTable;
  std::vector<Rgb> table = {};  // the colour of each value, for kTable
};

ValueType type_of(uint16_t sample_format, uint16_t bits) {
  const bool is_float = sample_format == SAMPLEFORMAT_IEEEFP;
  return {.kind = sample_format == SAMPLEFORMAT_UINT ? 'u' : sample_format == SAMPLEFORMAT_INT ? 'i' : is_float ? 'f' : '?', .bits = bits};
}

// Lossless compressions that are not limited to 1-bit samples.
constexpr std::array<uint16_t, 5> kLossless = {COMPRESSION_NONE, COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE, COMPRESSION_PACKBITS,
                                               COMPRESSION_DEFLATE};
constexpr std::array<uint16_t, 4> kOthers = {COMPRESSION_CCITTRLE, COMPRESSION_CCITTFAX3, COMPRESSION_CCITTFAX4, COMPRESSION_JPEG};

bool is_in(uint16_t compression, std::span<const uint16_t> list) { return std::ranges::find(list, compression) != list.end(); }

// Refuses JPEG data in several scans: each scan costs time for every pixel, even if all strips or tiles share the same few bytes.
void check_scans(const TiffReader& reader) {
  if (reader.compression() != COMPRESSION_JPEG) return;
  for (uint32_t block = 0; block < reader.num_blocks(); ++block) {
    const auto stored = reader.stored(block);
    if (!stored.empty() && has_several_scans(stored)) refuse_form("a TIFF image with JPEG compression in several scans");
  }
}

// An upper limit of the number of bytes to which one byte of a strip or tile is decompressed. `row_bytes`: size of a decompressed row.
uint64_t max_expansion(uint16_t compression, uint64_t row_bytes) {
  if (compression == COMPRESSION_NONE) return 1;
  if (compression == COMPRESSION_JPEG) return 615;           // 4 x 2 blocks of 64 pixels with three values, from 20 bits
  if (!is_in(compression, kLossless)) return 8 * row_bytes;  // CCITT: a row from 1 bit
  if (compression == COMPRESSION_PACKBITS) return 64;        // 128 bytes from 2 bytes
  if (compression == COMPRESSION_LZW) return 2560;           // the longest string of the table, 3839 bytes, from 12 bits
  return 1032;                                               // Deflate: 258 bytes from 2 bits
}

std::vector<Rgb> grey_table(uint16_t bits, bool zero_is_white) {
  std::vector<Rgb> table(size_t{1} << bits);
  const auto largest = table.size() - 1;
  for (size_t i = 0; i < table.size(); ++i) table[i].fill(static_cast<uint8_t>((zero_is_white ? largest - i : i) * 255 / largest));
  return table;
}

std::vector<Rgb> read_palette(const TiffReader& reader, uint16_t bits) {
  uint16_t* red = nullptr;
  uint16_t* green = nullptr;
  uint16_t* blue = nullptr;
  if (TIFFGetField(reader.get(), TIFFTAG_COLORMAP, &red, &green, &blue) != 1)
    throw std::runtime_error("it is damaged: its palette is missing");
  std::vector<Rgb> table(size_t{1} << bits);
  for (size_t i = 0; i < table.size(); ++i) {
    table[i] = {static_cast<uint8_t>(red[i] >> 8), static_cast<uint8_t>(green[i] >> 8), static_cast<uint8_t>(blue[i] >> 8)};
  }
  return table;
}

std::string describe_samples(uint16_t format) {
  switch (format) {
    case SAMPLEFORMAT_INT:
      return "signed integers";
    case SAMPLEFORMAT_IEEEFP:
      return "floating-point numbers";
    case SAMPLEFORMAT_COMPLEXINT:
    case SAMPLEFORMAT_COMPLEXIEEEFP:
      return "complex numbers";
    default:
      return fmt::format("values of an unknown type (sample format {})", format);
  }
}

std::string describe_colours(uint16_t photometric) {
  constexpr std::array<std::pair<uint16_t, const char*>, 7> kNames = {{{PHOTOMETRIC_MINISWHITE, "grey values (0 is white)"},
                                                                       {PHOTOMETRIC_MINISBLACK, "grey values"},
                                                                       {PHOTOMETRIC_PALETTE, "palette indices"},
                                                                       {PHOTOMETRIC_RGB, "RGB values"},
                                                                       {PHOTOMETRIC_SEPARATED, "CMYK values"},
                                                                       {PHOTOMETRIC_YCBCR, "YCbCr values without JPEG compression"},
                                                                       {PHOTOMETRIC_CIELAB, "Lab values"}}};
  for (const auto& [value, name] : kNames) {
    if (value == photometric) return name;
  }
  return fmt::format("colours with photometric interpretation {}", photometric);
}

void set_colours(const TiffReader& reader, uint16_t photometric, Form& form) {
  const auto bits = form.bits;
  const bool is_small = (bits == 1 || bits == 2 || bits == 4 || bits == 8) && !form.has_planes;
  switch (photometric) {
    case PHOTOMETRIC_MINISWHITE:
    case PHOTOMETRIC_MINISBLACK:
      if (is_small) {
        form.table = grey_table(bits, photometric == PHOTOMETRIC_MINISWHITE);
        return;
      }
      if (bits == 16 && photometric == PHOTOMETRIC_MINISBLACK && form.samples == 1) refuse_grey_16();
      break;
    case PHOTOMETRIC_PALETTE:
      if (!is_small) break;
      form.table = read_palette(reader, bits);
      return;
    case PHOTOMETRIC_RGB:
      form.colours = Colours::kRgb;
      if (bits == 8 || (bits == 16 && !form.has_planes)) return;
      break;
    case PHOTOMETRIC_SEPARATED:
      form.colours = Colours::kCmyk;
      if ((bits == 8 || bits == 16) && !form.has_planes) return;
      break;
    case PHOTOMETRIC_YCBCR:
      form.colours = Colours::kRgb;
      if (bits != 8 || form.has_planes || reader.compression() != COMPRESSION_JPEG) break;
      TIFFSetField(reader.get(), TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
      return;
    default:
      break;
  }
  const auto description = fmt::format("a TIFF image of {} with {} bits each{}", describe_colours(photometric), bits,
                                       form.has_planes ? " in separate planes" : "");
  const bool suits_raw = (bits == 8 || bits == 16) && (photometric == PHOTOMETRIC_MINISBLACK || photometric == PHOTOMETRIC_RGB);
  suits_raw ? refuse_but_in_raw(description) : refuse_form(description);
}

// Checks the samples of a pixel besides its colours: alpha, or samples whose meaning the file does not define.
void check_extra_samples(const TiffReader& reader, Form& form) {
  uint16_t num_extra = 0;
  uint16_t* kinds = nullptr;
  TIFFGetFieldDefaulted(reader.get(), TIFFTAG_EXTRASAMPLES, &num_extra, &kinds);
  const int num_colours = form.colours == Colours::kRgb ? 3 : form.colours == Colours::kCmyk ? 4 : 1;
  form.is_multiplied = num_extra > 0 && kinds[0] == EXTRASAMPLE_ASSOCALPHA;
  constexpr uint16_t kMaxSamples = 6;
  const bool is_known = num_colours + num_extra == form.samples && form.samples <= kMaxSamples;
  const bool suits_colours = num_extra == 0 ||
                             (form.colours == Colours::kRgb && (!form.has_planes || kinds[0] == EXTRASAMPLE_UNASSALPHA)) ||
                             (form.bits == 8 && !form.has_planes && !form.is_multiplied);
  if (!is_known || !suits_colours) {
    refuse_but_in_raw(fmt::format("a TIFF image with {} samples per pixel, {} of which are not colours", form.samples, num_extra));
  }
}

Form read_form(const TiffReader& reader) {
  Form form{.width = reader.field<uint32_t>(TIFFTAG_IMAGEWIDTH, 0),
            .height = reader.field<uint32_t>(TIFFTAG_IMAGELENGTH, 0),
            .bits = reader.field<uint16_t>(TIFFTAG_BITSPERSAMPLE, 1),
            .samples = reader.field<uint16_t>(TIFFTAG_SAMPLESPERPIXEL, 1)};
  check_size(form.width, form.height);
  const auto sample_format = reader.field<uint16_t>(TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_UINT);
  if (sample_format != SAMPLEFORMAT_UINT) {
    const auto description = fmt::format("a TIFF image of {} with {} bits each", describe_samples(sample_format), form.bits);
    type_of(sample_format, form.bits).is_supported() ? refuse_but_in_raw(description) : refuse_form(description);
  }
  if (!is_in(reader.compression(), kLossless) && !is_in(reader.compression(), kOthers)) {
    refuse_form(fmt::format("a TIFF image with the compression {}", reader.name_of_compression()));
  }
  const auto photometric = reader.field<uint16_t>(TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISWHITE);
  const bool is_separate = reader.has_separate_planes();
  const bool is_reversed = reader.field<uint16_t>(TIFFTAG_FILLORDER, FILLORDER_MSB2LSB) == FILLORDER_LSB2MSB;
  if (is_separate && (is_reversed || photometric == PHOTOMETRIC_MINISWHITE)) {
    refuse_form("a TIFF image with separate planes and with reversed bits or 0 as white");
  }
  form.has_planes = is_separate && form.samples > 1;
  form.num_planes = form.has_planes ? 3 : 1;
  set_colours(reader, photometric, form);
  check_extra_samples(reader, form);
  return form;
}

// Converts `count` pixels of a row like Pillow.
void convert(const Form& form, const uint8_t* row, size_t count, uint8_t* rgb) {
  const auto sixteen = [row](size_t i) {
    uint16_t value = 0;
    std::memcpy(&value, row + 2 * i, sizeof value);
    return value;
  };
  const auto sample = [&](size_t i) { return form.bits == 8 ? row[i] : static_cast<uint8_t>(sixteen(i) >> 8); };
  for (size_t x = 0; x < count; ++x, rgb += 3) {
    const size_t first = x * form.samples;
    switch (form.colours) {
      case Colours::kTable: {
        const size_t bit = first * form.bits;
        const auto value = row[bit / 8] >> (8 - form.bits - bit % 8) & ((1 << form.bits) - 1);
        std::ranges::copy(form.table[static_cast<size_t>(value)], rgb);
        break;
      }
      case Colours::kRgb: {
        const int alpha = form.is_multiplied ? sample(first + 3) : 255;
        for (size_t c = 0; c < 3; ++c) {
          rgb[c] = alpha == 0 ? uint8_t{0} : static_cast<uint8_t>(std::min(sample(first + c) * 255 / alpha, 255));
        }
        break;
      }
      case Colours::kCmyk: {
        const int light = 255 - sample(first + 3);
        for (size_t c = 0; c < 3; ++c) {
          const int product = sample(first + c) * light + 128;
          rgb[c] = static_cast<uint8_t>(light - ((product >> 8) + product) / 256);
        }
        break;
      }
    }
  }
}

// Reads one block at a time: a tile, or a row of a strip.
class Blocks {
 public:
  Blocks(const TiffReader& reader, const Form& form) : reader_(reader), are_tiles_(TIFFIsTiled(reader.get()) != 0), width_(form.width) {
    if (are_tiles_) set_tile_size(form);
    row_bytes_ = (size_t{width_} * form.bits * (form.has_planes ? 1 : form.samples) + 7) / 8;
    const auto expected = are_tiles_ ? TIFFTileRowSize(reader.get()) : TIFFScanlineSize(reader.get());
    if (expected < 0 || static_cast<size_t>(expected) != row_bytes_) reader.fail();
    check_length(form);
    samples_.resize(row_bytes_ * height_);
  }
  uint32_t width() const { return width_; }
  uint32_t height() const { return height_; }

  // Reads the block that begins at the given pixel. The rows of strips must be read in order.
  void read(uint32_t x, uint32_t y, uint16_t plane) {
    TIFF* const tiff = reader_.get();
    const auto size = static_cast<tmsize_t>(samples_.size());
    const bool is_read = are_tiles_ ? TIFFReadEncodedTile(tiff, TIFFComputeTile(tiff, x, y, 0, plane), samples_.data(), size) == size
                                    : TIFFReadScanline(tiff, samples_.data(), y, plane) == 1;
    if (!is_read) reader_.fail();
  }
  // A row of the block that was read last.
  const uint8_t* row(uint32_t y) const { return samples_.data() + row_bytes_ * y; }

 private:
  void set_tile_size(const Form& form) {
    constexpr uint64_t kMaxTilePixels = uint64_t{1} << 24;
    constexpr uint64_t kMaxTileBytes = uint64_t{1} << 27;
    constexpr uint64_t kMaxPaddedPixels = uint64_t{1} << 29;  // including pixels of tiles beyond the edges
    width_ = reader_.field<uint32_t>(TIFFTAG_TILEWIDTH, 0);
    height_ = reader_.field<uint32_t>(TIFFTAG_TILELENGTH, 0);
    const auto padded = [](uint64_t size, uint64_t tile) { return (size + tile - 1) / tile * tile; };
    const bool is_too_long = uint64_t{width_} * height_ > kMaxTileBytes / (uint64_t{form.samples} * ((form.bits + 7U) / 8));
    if (width_ == 0 || height_ == 0 || uint64_t{width_} * height_ > kMaxTilePixels || is_too_long ||
        padded(form.width, width_) > kMaxPaddedPixels / padded(form.height, height_)) {
      throw std::runtime_error(fmt::format(
          "its tiles of {} x {} pixels are too large or empty; save it with tiles of 256 x 256 pixels, or as PNG", width_, height_));
    }
  }

  // Refuses a file that is too short for its number of pixels, before memory is allocated for them.
  void check_length(const Form& form) const {
    const auto num_blocks = [](uint64_t size, uint64_t block) { return (size + block - 1) / block; };
    const auto num_rows = num_blocks(form.width, width_) * num_blocks(form.height, height_) * height_ * form.num_planes;
    uint64_t num_stored = 0;
    for (uint32_t block = 0; block < reader_.num_blocks(); ++block) num_stored += reader_.stored(block).size();
    if (num_rows * row_bytes_ / max_expansion(reader_.compression(), row_bytes_) > num_stored)
      throw_too_little_data(form.width, form.height);
  }

  const TiffReader& reader_;
  bool are_tiles_;
  uint32_t width_;
  uint32_t height_ = 1;
  size_t row_bytes_ = 0;
  std::vector<uint8_t> samples_;
};

// Calls use(samples, index, count) for each row of each block, with the row's samples, the index of its first pixel in the image, and its
// number of pixels.
template <class Use>
void read_rows(Blocks& blocks, const Form& form, uint16_t plane, const Use& use) {
  for (uint32_t top = 0; top < form.height; top += blocks.height()) {
    const auto height = std::min(blocks.height(), form.height - top);
    for (uint32_t left = 0; left < form.width; left += blocks.width()) {
      const auto width = std::min(blocks.width(), form.width - left);
      blocks.read(left, top, plane);
      for (uint32_t y = 0; y < height; ++y) use(blocks.row(y), size_t{top + y} * form.width + left, size_t{width});
    }
  }
}

}  // namespace

bool is_tiff(std::span<const uint8_t> file) {
  using namespace std::string_view_literals;
  return std::ranges::any_of(std::array{"II*\0"sv, "MM\0*"sv, "II+\0"sv, "MM\0+"sv}, [&](auto text) { return has_text(file, 0, text); });
}

void decode_tiff(std::span<const uint8_t> file, data::RgbImage& image) {
  const TiffReader reader(file);
  const auto form = read_form(reader);
  Blocks blocks(reader, form);
  check_scans(reader);
  allocate(form.width, form.height, image);
  for (uint16_t plane = 0; plane < form.num_planes; ++plane) {
    read_rows(blocks, form, plane, [&](const uint8_t* row, size_t first_pixel, size_t width) {
      uint8_t* const rgb = image.pixels.data() + 3 * first_pixel;
      if (!form.has_planes) return convert(form, row, width, rgb);
      for (size_t x = 0; x < width; ++x) rgb[3 * x + plane] = row[x];
    });
  }
  turn_upright(reader.orientation(), 3, image, image.pixels);
}

void decode_tiff_values(std::span<const uint8_t> file, data::ValueImage& image) {
  const TiffReader reader(file);
  Form form{.width = reader.field<uint32_t>(TIFFTAG_IMAGEWIDTH, 0),
            .height = reader.field<uint32_t>(TIFFTAG_IMAGELENGTH, 0),
            .bits = reader.field<uint16_t>(TIFFTAG_BITSPERSAMPLE, 1),
            .samples = reader.field<uint16_t>(TIFFTAG_SAMPLESPERPIXEL, 1)};
  const auto format = reader.field<uint16_t>(TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_UINT);
  const auto type = type_of(format, form.bits);
  if (!type.is_supported()) {
    throw std::runtime_error(fmt::format("it is a TIFF image of {} with {} bits each; save it as uint8, uint16, int16, float32 or float64",
                                         format == SAMPLEFORMAT_UINT ? "unsigned integers" : describe_samples(format), form.bits));
  }
  form.has_planes = form.samples > 1 && reader.has_separate_planes();
  form.num_planes = form.has_planes ? form.samples : uint16_t{1};
  if (!is_in(reader.compression(), kLossless)) {
    throw std::runtime_error(fmt::format("it is a TIFF image with the compression {}; save it with LZW or Deflate, or uncompressed",
                                         reader.name_of_compression()));
  }
  check_num_values(form.width, form.height, form.samples);
  Blocks blocks(reader, form);
  image.maximum = type.maximum();
  allocate_values(form.width, form.height, form.samples, image);
  const size_t samples = form.has_planes ? 1 : form.samples;
  for (uint16_t plane = 0; plane < form.num_planes; ++plane) {
    read_rows(blocks, form, plane, [&](const uint8_t* row, size_t first_pixel, size_t width) {
      for (size_t i = 0; i < width * samples; ++i) {
        const size_t pixel = first_pixel + i / samples;
        image.values[pixel * form.samples + plane + i % samples] = type.read(row + i * (form.bits / 8), image);
      }
    });
  }
  turn_upright(reader.orientation(), form.samples, image, image.values);
}

void read_tiff_traits(std::span<const uint8_t> file, data::ImageTraits& traits) {
  const TiffReader reader(file);
  const auto bits = reader.field<uint16_t>(TIFFTAG_BITSPERSAMPLE, 1);
  const auto samples = reader.field<uint16_t>(TIFFTAG_SAMPLESPERPIXEL, 1);
  const auto format = reader.field<uint16_t>(TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_UINT);
  const auto photometric = reader.field<uint16_t>(TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISWHITE);
  const bool is_grey = photometric == PHOTOMETRIC_MINISBLACK;
  const bool is_separate = reader.has_separate_planes();
  traits.bits = bits;
  const bool has_numbers = format != SAMPLEFORMAT_UINT || bits > 16;
  const bool has_more_channels = is_grey ? samples > (bits == 16 ? 1 : 2) : photometric == PHOTOMETRIC_RGB && samples > 4;
  const bool has_deep_planes = photometric == PHOTOMETRIC_RGB && bits == 16 && is_separate;
  if (has_numbers || has_more_channels || has_deep_planes) {
    traits.mode = data::ImageMode::kRaw;
  } else if (is_grey && bits == 16) {
    traits.mode = data::ImageMode::kGrey16;
  }
}

int64_t count_pages(std::span<const uint8_t> file) {
  const TiffReader reader(file);
  int64_t count = 1;
  while (TIFFReadDirectory(reader.get()) == 1) {
    const bool is_part = (reader.field<uint32_t>(TIFFTAG_SUBFILETYPE, 0) & (FILETYPE_REDUCEDIMAGE | FILETYPE_MASK)) != 0;
    count += is_part ? 0 : 1;
  }
  return count;
}

}  // namespace trainer::images
