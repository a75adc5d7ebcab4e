#include "images/pnm.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "images/bytes.h"
#include "images/size.h"

namespace trainer::images {
namespace {

constexpr uint32_t kLargestMaximum = 65535;

[[noreturn]] void throw_truncated() { throw std::runtime_error("the file ends too early"); }

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// The characters of a file. Comments, from # to the end of a line, are left out.
class Text {
 public:
  Text(std::span<const uint8_t> file, size_t offset) : rest_(file.subspan(offset)) {}

  // A number, and the one white space after it.
  uint32_t read_number() {
    std::string digits;
    char c = 0;
    while (digits.size() <= kMaxDigits && next(c)) {
      if (!is_space(c)) {
        digits += c;
      } else if (!digits.empty()) {
        break;
      }
    }
    if (digits.empty()) throw_truncated();
    uint32_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (digits.size() > kMaxDigits || error != std::errc{} || end != digits.data() + digits.size()) {
      throw std::runtime_error("it is damaged: it has other characters where a number is expected");
    }
    return number;
  }

  // One of the digits 0 and 1, which need no white space between them.
  bool read_bit() {
    char c = ' ';
    while (is_space(c)) {
      if (!next(c)) throw_truncated();
    }
    if (c != '0' && c != '1') throw std::runtime_error("it is damaged: a pixel is neither 0 nor 1");
    return c == '1';
  }

  std::span<const uint8_t> rest() const { return rest_; }

 private:
  static constexpr size_t kMaxDigits = 10;

  bool next(char& c) {
    while (!rest_.empty() && rest_[0] == '#') {
      const auto end = std::ranges::find_if(rest_, [](uint8_t byte) { return byte == '\n' || byte == '\r'; });
      rest_ = rest_.subspan(std::min<size_t>(static_cast<size_t>(end - rest_.begin()) + 1, rest_.size()));
    }
    if (rest_.empty()) return false;
    c = static_cast<char>(rest_[0]);
    rest_ = rest_.subspan(1);
    return true;
  }

  std::span<const uint8_t> rest_;
};

// The eight bits of each value up to `maximum`. Like Pillow, grey values of 16 bits are scaled to 65535, and those above 255 are white.
std::vector<uint8_t> make_scale(uint32_t maximum, bool is_grey) {
  const double largest = is_grey && maximum > 255 ? kLargestMaximum : 255;
  std::vector<uint8_t> scale(size_t{maximum} + 1);
  for (uint32_t value = 0; value <= maximum; ++value) {
    scale[value] = static_cast<uint8_t>(std::min(255.0, std::nearbyint(value / static_cast<double>(maximum) * largest)));
  }
  return scale;
}

void read_bits(Text& text, bool is_plain, input::RgbImage& image, uint32_t width, uint32_t height) {
  const size_t row_bytes = (size_t{width} + 7) / 8;
  const auto packed = text.rest();
  if (packed.size() < (is_plain ? size_t{width} : row_bytes) * height) throw_truncated();
  allocate(width, height, image);
  uint8_t* rgb = image.pixels.data();
  for (size_t y = 0; y < height; ++y) {
    for (size_t x = 0; x < width; ++x) {
      const bool is_black = is_plain ? text.read_bit() : (packed[y * row_bytes + x / 8] >> (7 - x % 8) & 1) != 0;
      rgb = std::fill_n(rgb, 3, is_black ? 0 : 255);
    }
  }
}

void read_values(Text& text, bool is_plain, bool is_grey, input::RgbImage& image, uint32_t width, uint32_t height) {
  const auto maximum = text.read_number();
  if (maximum == 0 || maximum > kLargestMaximum) {
    throw std::runtime_error(fmt::format("it is damaged: its largest value is {}, and must be 1 to {}", maximum, kLargestMaximum));
  }
  const auto scale = make_scale(maximum, is_grey);
  const size_t num_values = size_t{width} * height * (is_grey ? 1 : 3);
  const size_t value_bytes = maximum > 255 ? 2 : 1;
  const auto data = text.rest();
  // A plain value has at least one digit, and white space before the next one.
  if (data.size() < (is_plain ? 2 * num_values - 1 : value_bytes * num_values)) throw_truncated();
  allocate(width, height, image);
  uint8_t* rgb = image.pixels.data();
  if (!is_plain && !is_grey && maximum == 255) {
    std::copy_n(data.data(), num_values, rgb);
    return;
  }
  for (size_t i = 0; i < num_values; ++i) {
    const uint32_t value = is_plain ? text.read_number() : value_bytes == 1 ? data[i] : uint32_t{data[2 * i]} << 8 | data[2 * i + 1];
    if (is_plain && value > maximum)
      throw std::runtime_error(fmt::format("it is damaged: it has the value {} above its largest, {}", value, maximum));
    rgb = std::fill_n(rgb, is_grey ? 3 : 1, scale[std::min(value, maximum)]);
  }
}

}  // namespace

bool is_pnm(std::span<const uint8_t> file) {
  return file.size() >= 3 && file[0] == 'P' && file[1] >= '1' && file[1] <= '6' && is_space(static_cast<char>(file[2]));
}

void decode_pnm(std::span<const uint8_t> file, input::RgbImage& image) {
  const int kind = file[1] - '0';
  const bool is_plain = kind <= 3;
  Text text(file, 2);
  const auto width = text.read_number();
  const auto height = text.read_number();
  check_size(width, height);
  if (kind == 1 || kind == 4) {
    read_bits(text, is_plain, image, width, height);
  } else {
    read_values(text, is_plain, kind == 2 || kind == 5, image, width, height);
  }
}

}  // namespace trainer::images
