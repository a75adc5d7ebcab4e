#include <fmt/format.h>

#include "data/images/formats.h"

// jpeglib.h needs FILE and size_t.
#include <jpeglib.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include "data/images/refusal.h"

namespace trainer::images {
namespace {

// The largest number of scans that is accepted. Decoding a scan takes time for every pixel, even if the scan has only a few bytes. Common
// programs write at most about ten scans.
int max_scans(const jpeg_decompress_struct& info) {
  constexpr uint64_t kMaxPixelsInAllScans = uint64_t{1} << 32;
  return static_cast<int>(std::min<uint64_t>(100, kMaxPixelsInAllScans / (uint64_t{info.image_width} * info.image_height)));
}

// libjpeg with the whole file in memory. At the end of the file, the data source suspends libjpeg, so that every function reports missing
// data.
class Decompressor {
 public:
  // Calls libjpeg and throws its errors. An error leaves `function` by longjmp, which runs no destructors, so `function` must not own
  // anything.
  template <class Function>
  auto call(Function function) {
    if (setjmp(on_error_) != 0) {
      throw std::runtime_error(
          has_too_many_scans_
              ? fmt::format("it has more than {} scans, the limit for {} x {} pixels; save it as baseline JPEG or PNG", max_scans(info_),
                            info_.image_width, info_.image_height)
              : fmt::format("it is damaged, or a kind of JPEG that is not supported: {}; convert or replace it", message_.data()));
    }
    return function(&info_);
  }

  explicit Decompressor(std::span<const uint8_t> file) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) {
      auto& self = *static_cast<Decompressor*>(info->client_data);
      info->err->format_message(info, self.message_.data());
      std::longjmp(self.on_error_, 1);
    };
    errors_.emit_message = [](j_common_ptr, int) {};
    progress_.progress_monitor = [](j_common_ptr info) {
      auto& self = *static_cast<Decompressor*>(info->client_data);
      if (self.info_.input_scan_number <= max_scans(self.info_)) return;
      self.has_too_many_scans_ = true;
      std::longjmp(self.on_error_, 1);
    };
    info_.client_data = this;
    call([](j_decompress_ptr info) { jpeg_create_decompress(info); });
    info_.progress = &progress_;
    source_.init_source = [](j_decompress_ptr) {};
    source_.fill_input_buffer = [](j_decompress_ptr) -> boolean { return FALSE; };
    source_.skip_input_data = [](j_decompress_ptr info, long count) {
      const auto skipped = std::min(static_cast<size_t>(std::max(count, 0L)), info->src->bytes_in_buffer);
      info->src->next_input_byte += skipped;
      info->src->bytes_in_buffer -= skipped;
    };
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = [](j_decompress_ptr) {};
    source_.next_input_byte = file.data();
    source_.bytes_in_buffer = file.size();
    info_.src = &source_;
  }
  ~Decompressor() { jpeg_destroy_decompress(&info_); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;
  jpeg_decompress_struct& info() { return info_; }

 private:
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  bool has_too_many_scans_ = false;
  std::jmp_buf on_error_{};
  std::array<char, JMSG_LENGTH_MAX> message_{};
};

// Refuses a file that is too short for its number of pixels: every group of blocks (MCU) needs at least one bit, unless the file is
// arithmetically coded.
void check_length(const jpeg_decompress_struct& info, size_t num_bytes) {
  const auto groups = [](JDIMENSION pixels, int blocks) { return (pixels - 1) / static_cast<unsigned>(blocks * DCTSIZE) + uint64_t{1}; };
  const auto num_groups = groups(info.image_width, info.max_h_samp_factor) * groups(info.image_height, info.max_v_samp_factor);
  if (!info.arith_code && num_groups > num_bytes * 8) throw_truncated();
}

void read_header(Decompressor& jpeg, size_t num_bytes) {
  if (jpeg.call([](j_decompress_ptr info) { return jpeg_read_header(info, TRUE); }) == JPEG_SUSPENDED) throw_truncated();
  auto& info = jpeg.info();
  check_size(info.image_width, info.image_height);
  check_length(info, num_bytes);
  if (info.num_components != 1 && info.num_components != 3 && info.num_components != 4) {
    throw std::runtime_error(fmt::format("it has {} colour components, not 1, 3 or 4; save it with RGB colours", info.num_components));
  }
  info.out_color_space = info.num_components == 4 ? JCS_CMYK : JCS_RGB;
}

void read_row(Decompressor& jpeg, uint8_t* row) {
  if (jpeg.call([&](j_decompress_ptr info) { return jpeg_read_scanlines(info, &row, 1); }) != 1) throw_truncated();
}

// Like Pillow, assumes that the CMYK values of every file are inverted, as Adobe's programs write them.
void convert_cmyk(const std::vector<uint8_t>& row, uint8_t* rgb) {
  for (size_t i = 0; i < row.size(); i += 4) {
    for (size_t c = 0; c < 3; ++c) *rgb++ = static_cast<uint8_t>((row[i + c] * row[i + 3] + 127) / 255);
  }
}

void start(Decompressor& jpeg, size_t num_bytes) {
  read_header(jpeg, num_bytes);
  if (!jpeg.call([](j_decompress_ptr info) { return jpeg_start_decompress(info); })) throw_truncated();
}

// Reads the next `height` rows of the columns that libjpeg is set to decode.
void read_rows(Decompressor& jpeg, JDIMENSION height, data::RgbImage& image) {
  const size_t width = jpeg.info().output_width;
  const bool is_cmyk = jpeg.info().out_color_space == JCS_CMYK;
  allocate(jpeg.info().output_width, height, image);
  std::vector<uint8_t> cmyk(is_cmyk ? 4 * width : 0);
  for (size_t y = 0; y < height; ++y) {
    uint8_t* const row = image.pixels.data() + 3 * width * y;
    read_row(jpeg, is_cmyk ? cmyk.data() : row);
    if (is_cmyk) convert_cmyk(cmyk, row);
  }
}

}  // namespace

bool is_jpeg(std::span<const uint8_t> file) { return file.size() >= 3 && file[0] == 0xFF && file[1] == 0xD8 && file[2] == 0xFF; }

bool has_several_scans(std::span<const uint8_t> file) {
  Decompressor jpeg(file);
  return jpeg.call([](j_decompress_ptr info) { return jpeg_read_header(info, FALSE) == JPEG_HEADER_OK && jpeg_has_multiple_scans(info); });
}

void decode_jpeg(std::span<const uint8_t> file, data::RgbImage& image) {
  Decompressor jpeg(file);
  start(jpeg, file.size());
  read_rows(jpeg, jpeg.info().output_height, image);
  // Reports errors after the last row; a missing end marker is accepted.
  jpeg.call([](j_decompress_ptr info) { return jpeg_finish_decompress(info); });
}

data::Box find_jpeg_size(std::span<const uint8_t> file) {
  Decompressor jpeg(file);
  read_header(jpeg, file.size());
  return {0, 0, static_cast<int>(jpeg.info().image_height), static_cast<int>(jpeg.info().image_width)};
}

data::Box decode_jpeg_part(std::span<const uint8_t> file, const data::Box& part, data::RgbImage& image) {
  Decompressor jpeg(file);
  start(jpeg, file.size());
  // Chroma is interpolated between groups of blocks (MCUs), but not at the edges of the decoded part, so one more group is decoded on each
  // side.
  const auto group = static_cast<JDIMENSION>(jpeg.info().max_h_samp_factor * DCTSIZE);
  const auto begin = static_cast<JDIMENSION>(part.left);
  const auto end = static_cast<JDIMENSION>(part.left + part.width);
  JDIMENSION left = begin - std::min(begin, group);
  JDIMENSION width = std::min(end + group, jpeg.info().output_width) - left;
  // libjpeg moves `left` to the beginning of a group.
  jpeg.call([&](j_decompress_ptr info) { jpeg_crop_scanline(info, &left, &width); });
  const auto top = static_cast<JDIMENSION>(part.top);
  if (top > 0 && jpeg.call([&](j_decompress_ptr info) { return jpeg_skip_scanlines(info, top); }) != top) throw_truncated();
  read_rows(jpeg, static_cast<JDIMENSION>(part.height), image);
  return {part.top, static_cast<int>(left), part.height, static_cast<int>(width)};
}

}  // namespace trainer::images
