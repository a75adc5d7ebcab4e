#include <libdeflate.h>

#include <stdexcept>
#include <string_view>

#include "data/images/formats.h"
#include "data/images/refusal.h"

namespace trainer::images {
namespace {

constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
// A chunk consists of its length, its name of four letters, its content, and a checksum of name and content.
constexpr size_t kNameOffset = 4;
constexpr size_t kContentOffset = 8;
constexpr size_t kFrame = 12;  // bytes of a chunk besides its content

struct Part {
  std::string_view name;
  std::span<const uint8_t> whole;
  std::span<const uint8_t> content() const { return whole.subspan(kContentOffset, whole.size() - kFrame); }
};

Part part_at(std::span<const uint8_t> file, size_t offset) {
  const auto whole = bytes_at(file, offset, big_endian(file, offset) + kFrame);
  return {{reinterpret_cast<const char*>(whole.data()) + kNameOffset, 4}, whole};
}

void check_sum(const Part& part) {
  const auto checked = part.whole.subspan(kNameOffset, part.whole.size() - kFrame + 4);
  if (libdeflate_crc32(0, checked.data(), checked.size()) != big_endian(part.whole, part.whole.size() - 4)) {
    throw std::runtime_error("it is damaged: a checksum is wrong");
  }
}

struct PngHeader {
  uint64_t width = 0;
  uint64_t height = 0;
  int bit_depth = 0;
  int colour_type = 0;

  bool is_grey_16() const { return bit_depth == 16 && colour_type == 0; }

  explicit PngHeader(const Part& part) {
    const auto content = part.content();
    if (part.name != "IHDR" || content.size() != 13) throw std::runtime_error("it is damaged: it does not begin with a header");
    width = big_endian(content, 0);
    height = big_endian(content, 4);
    bit_depth = content[8];
    colour_type = content[9];
  }
};

// Deflate expands one byte to at most 1032 bytes.
void check_length(const PngHeader& header, uint64_t num_bytes) {
  constexpr uint64_t kMaxExpansion = 1032;
  if (header.width * header.height * static_cast<uint64_t>(header.bit_depth) / 8 > num_bytes * kMaxExpansion)
    throw_too_little_data(header.width, header.height);
}

}  // namespace

bool is_png(std::span<const uint8_t> file) { return has_text(file, 0, kSignature); }

PngParts read_png(std::span<const uint8_t> file) {
  const PngHeader header(part_at(file, kSignature.size()));
  check_size(header.width, header.height);
  PngParts parts{header.is_grey_16(), {}};
  parts.file.reserve(file.size());
  const auto append = [&](std::span<const uint8_t> bytes) { parts.file.insert(parts.file.end(), bytes.begin(), bytes.end()); };
  append(file.first(kSignature.size()));
  uint64_t num_data_bytes = 0;
  for (size_t offset = kSignature.size();;) {
    const auto part = part_at(file, offset);
    offset += part.whole.size();
    check_sum(part);
    if (part.name == "IDAT") num_data_bytes += part.content().size();
    if (part.name == "IHDR" || part.name == "PLTE" || part.name == "IDAT" || part.name == "IEND") append(part.whole);
    if (part.name == "IEND") break;
  }
  check_length(header, num_data_bytes);
  return parts;
}

std::span<const uint8_t> read_png_traits(std::span<const uint8_t> file, data::ImageTraits& traits) {
  auto part = part_at(file, kSignature.size());
  const PngHeader header(part);
  traits.bits = header.bit_depth;
  if (header.is_grey_16()) traits.mode = data::ImageMode::kGrey16;
  for (auto offset = kSignature.size(); part.name != "IEND" && part.name != "eXIf"; offset += part.whole.size())
    part = part_at(file, offset);
  return part.content();
}

}  // namespace trainer::images
