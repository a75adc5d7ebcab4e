#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "data/images/formats.h"
#include "data/images/refusal.h"

namespace trainer::images {
namespace {

constexpr uint32_t kLargestMaximum = 65535;
constexpr size_t kKindBytes = 2;  // "P5"

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Reads the numbers at the beginning of `rest`. Skips comments, from # to the end of the line.
class Numbers {
 public:
  explicit Numbers(std::string_view rest) : rest_(rest) {}

  // Reads a number and the single white-space character after it.
  uint32_t next() {
    constexpr size_t kMaxDigits = 10;
    std::string digits;
    while (digits.size() <= kMaxDigits && !rest_.empty()) {
      const char c = rest_[0];
      rest_.remove_prefix(c == '#' ? std::min(rest_.find_first_of("\n\r"), rest_.size() - 1) + 1 : 1);
      if (is_space(c) && !digits.empty()) break;
      if (c != '#' && !is_space(c)) digits += c;
    }
    if (digits.empty()) throw_truncated();
    if (digits.find_first_not_of("0123456789") != std::string::npos) {
      throw std::runtime_error("it is damaged: it has characters other than digits where a number is expected");
    }
    uint32_t number = 0;
    const auto error = std::from_chars(digits.data(), digits.data() + digits.size(), number).ec;
    if (digits.size() > kMaxDigits || error != std::errc{}) {
      throw std::runtime_error(fmt::format("it is damaged: the number that begins with {} is too large or has too many digits", digits));
    }
    return number;
  }

  size_t num_left() const { return rest_.size(); }

 private:
  std::string_view rest_;
};

// Returns a table that scales the values 0 to `maximum` to 0 to `largest`.
template <class T>
std::vector<T> make_scale(uint32_t maximum, T largest) {
  std::vector<T> scale(size_t{maximum} + 1);
  for (uint32_t value = 0; value <= maximum; ++value) {
    scale[value] = static_cast<T>(std::nearbyint(value / static_cast<double>(maximum) * static_cast<double>(largest)));
  }
  return scale;
}

struct PnmHeader {
  bool is_grey = false;
  uint32_t width = 0;
  uint32_t height = 0;
  uint32_t maximum = 0;                // the largest value
  std::span<const uint8_t> rest = {};  // the values

  bool is_grey_16() const { return is_grey && maximum > 255; }
  size_t num_values() const { return size_t{width} * height * (is_grey ? 1 : 3); }
};

PnmHeader read_header(std::span<const uint8_t> file) {
  Numbers numbers(std::string_view(reinterpret_cast<const char*>(file.data()), file.size()).substr(kKindBytes));
  PnmHeader header{.is_grey = file[1] == '5', .width = numbers.next(), .height = numbers.next()};
  check_size(header.width, header.height);
  header.maximum = numbers.next();
  if (header.maximum == 0 || header.maximum > kLargestMaximum) {
    throw std::runtime_error(fmt::format("it is damaged: its maximum value is {}, but must be 1 to {}", header.maximum, kLargestMaximum));
  }
  header.rest = file.last(numbers.num_left());
  return header;
}

// Refuses a file that is too short for its number of values, before memory is allocated for them.
void require_values(const PnmHeader& header) { bytes_at(header.rest, 0, header.num_values() * (header.maximum > 255 ? 2 : 1)); }

// Calls `use` with each value; values above the maximum are replaced by the maximum.
template <class Use>
void read_values(const PnmHeader& header, const Use& use) {
  const auto& data = header.rest;
  for (size_t i = 0; i < header.num_values(); ++i) {
    const uint32_t value = header.maximum <= 255 ? data[i] : uint32_t{data[2 * i]} << 8 | data[2 * i + 1];
    use(std::min(value, header.maximum));
  }
}

}  // namespace

bool is_pnm(std::span<const uint8_t> file) {
  return file.size() >= 3 && file[0] == 'P' && (file[1] == '5' || file[1] == '6') && is_space(static_cast<char>(file[2]));
}

void decode_pnm(std::span<const uint8_t> file, data::RgbImage& image) {
  const auto header = read_header(file);
  if (header.is_grey_16()) refuse_grey_16();
  require_values(header);
  allocate(header.width, header.height, image);
  uint8_t* rgb = image.pixels.data();
  if (!header.is_grey && header.maximum == 255) {
    std::copy_n(header.rest.data(), header.num_values(), rgb);
    return;
  }
  const auto scale = make_scale<uint8_t>(header.maximum, 255);
  const int count = header.is_grey ? 3 : 1;
  read_values(header, [&](uint32_t value) { rgb = std::fill_n(rgb, count, scale[value]); });
}

void decode_pnm_grey_16(std::span<const uint8_t> file, data::ValueImage& image) {
  const auto header = read_header(file);
  if (!header.is_grey_16()) refuse_no_grey_16();
  require_values(header);
  image.maximum = kLargestMaximum;
  allocate_values(header.width, header.height, 1, image);
  const auto scale = make_scale(header.maximum, image.maximum);
  auto out = image.values.begin();
  read_values(header, [&](uint32_t value) { *out++ = scale[value]; });
}

void read_pnm_traits(std::span<const uint8_t> file, data::ImageTraits& traits) {
  const auto header = read_header(file);
  if (header.maximum > 255) traits.bits = 16;
  if (header.is_grey_16()) traits.mode = data::ImageMode::kGrey16;
}

}  // namespace trainer::images
