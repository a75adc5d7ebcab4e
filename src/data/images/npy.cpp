#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "data/images/formats.h"
#include "data/images/refusal.h"

namespace trainer::images {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct Array {
  ValueType type;
  bool is_column_major = false;
  std::vector<uint64_t> shape = {};  // height, width, channels
  std::span<const uint8_t> data = {};

  size_t value_bytes() const { return static_cast<size_t>(type.bits) / 8; }
};

[[noreturn]] void throw_damaged_header() { throw std::runtime_error("it is damaged: its header is not that of a NumPy array"); }

// Returns the text after `key` in the header, a Python dictionary such as {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
std::string_view value_of(std::string_view header, std::string_view key) {
  const auto at = header.find(key);
  if (at == std::string_view::npos) throw_damaged_header();
  const auto value = header.substr(at + key.size());
  return value.substr(std::min(value.find_first_not_of(" :"), value.size()));
}

std::vector<uint64_t> parse_shape(std::string_view text) {
  std::vector<uint64_t> shape;
  const auto end = text.find(')');
  if (text.empty() || text[0] != '(' || end == std::string_view::npos) throw_damaged_header();
  text = text.substr(1, end - 1);
  while (!text.empty()) {
    uint64_t length = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    if (error != std::errc()) throw_damaged_header();
    shape.push_back(length);
    text.remove_prefix(static_cast<size_t>(rest - text.data()));
    text.remove_prefix(std::min(text.find_first_not_of(" ,"), text.size()));
  }
  return shape;
}

Array read_array(std::span<const uint8_t> file) {
  const bool is_first_version = bytes_at(file, kMagic.size(), 1)[0] == 1;
  const size_t length_bytes = is_first_version ? 2 : 4;
  const size_t begin = kMagic.size() + 2 + length_bytes;
  const size_t length = little_endian(file, kMagic.size() + 2, length_bytes);
  constexpr size_t kMostLength = 65536;
  if (length > kMostLength) throw_damaged_header();
  const auto bytes = bytes_at(file, begin, length);
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto type = value_of(header, "'descr'");
  const auto end = type.find('\'', 1);
  if (type.empty() || type[0] != '\'' || end == std::string_view::npos) {
    throw std::runtime_error(
        "it is a structured array (several named fields); save the fields as the channels of an array [height, width, channels]");
  }
  const auto name = type.substr(1, end - 1);  // "<f4"
  Array array{.type = {},
              .is_column_major = value_of(header, "'fortran_order'").starts_with("True"),
              .shape = parse_shape(value_of(header, "'shape'")),
              .data = file.subspan(begin + length)};
  if (name.size() == 3) array.type = {.kind = name[1], .bits = 8 * (name[2] - '0'), .is_swapped = name[0] == '>'};
  if (!array.type.is_supported()) {
    throw std::runtime_error(
        fmt::format("its array has the unsupported data type {}; save it as uint8, uint16, int16, float32 or float64", name.substr(0, 10)));
  }
  if (array.shape.size() == 2) array.shape.push_back(1);
  if (array.shape.size() != 3) {
    throw std::runtime_error(
        fmt::format("its array has {} dimensions; save it as [height, width] or [height, width, channels]", array.shape.size()));
  }
  return array;
}

}  // namespace

bool is_npy(std::span<const uint8_t> file) { return has_text(file, 0, kMagic); }

void read_npy_traits(std::span<const uint8_t> file, data::ImageTraits& traits) {
  traits.mode = data::ImageMode::kRaw;
  const auto shape = read_array(file).shape;
  constexpr uint64_t kManyChannels = 16;
  traits.are_channels_first = shape[0] < shape[1] && shape[0] < shape[2] && shape[2] > kManyChannels;
}

void decode_npy(std::span<const uint8_t> file, data::ValueImage& image) {
  const auto array = read_array(file);
  const auto height = array.shape[0], width = array.shape[1], channels = array.shape[2];
  check_num_values(width, height, channels);
  if (array.data.size() / array.value_bytes() / channels < width * height) throw_truncated();
  allocate_values(width, height, channels, image);
  image.maximum = array.type.maximum();
  for (size_t i = 0; i < image.values.size(); ++i) {
    const size_t channel = i % channels, column = i / channels % width, row = i / channels / width;
    const size_t index = array.is_column_major ? row + height * (column + width * channel) : i;
    image.values[i] = array.type.read(array.data.data() + index * array.value_bytes(), image);
  }
}

}  // namespace trainer::images
