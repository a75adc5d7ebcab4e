#include "checkpoint/zip_writer.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <libdeflate.h>

#include "base/little_endian.h"
#include "checkpoint/zip_format.h"

namespace trainer::checkpoint {
namespace {

using namespace zip;
using little_endian::append;

constexpr uint64_t kAlignment = 64;
constexpr uint16_t kVersion64 = 45;  // the first version with zip64; readers treat lower ones alike
constexpr uint16_t kFirstOfJanuary1980 = (1 << 5) | 1;

uint32_t saturated(uint64_t value) { return value >= kIn64 ? kIn64 : static_cast<uint32_t>(value); }

uint16_t saturated_count(uint64_t value) { return value >= kCountIn64 ? kCountIn64 : static_cast<uint16_t>(value); }

// The fields that local and central headers have in common.
void append_common(std::string& header, uint32_t crc, uint64_t size, size_t name_size, size_t extra_size) {
  append(header, kVersion64);
  append(header, kUtf8Flag);
  append(header, uint16_t{0});  // uncompressed
  append(header, uint16_t{0});  // midnight
  append(header, kFirstOfJanuary1980);
  append(header, crc);
  append(header, saturated(size));
  append(header, saturated(size));
  append(header, static_cast<uint16_t>(name_size));
  append(header, static_cast<uint16_t>(extra_size));
}

// In a central header the offset may also need 64 bits; a local header has none (`offset` is 0).
std::string zip64_extra(uint64_t size, uint64_t offset) {
  std::string values;
  if (size >= kIn64) {
    append(values, size);
    append(values, size);
  }
  if (offset >= kIn64) append(values, offset);
  if (values.empty()) return values;
  std::string extra;
  append(extra, kExtra64);
  append(extra, static_cast<uint16_t>(values.size()));
  return extra + values;
}

// An extra field that readers ignore, with PyTorch's id and fill byte. It aligns the bytes that follow it.
std::string padding_extra(uint64_t position) {
  constexpr uint64_t kHeaderSize = 4;
  const auto size = (kAlignment - (position + kHeaderSize) % kAlignment) % kAlignment;
  std::string extra = "FB";
  append(extra, static_cast<uint16_t>(size));
  return extra.append(size, 'Z');
}

}  // namespace

ZipWriter::ZipWriter(std::string folder, Output& output) : folder_(std::move(folder)), output_(output) {}

void ZipWriter::add(std::string_view name, std::string_view content) {
  add(name, std::span(reinterpret_cast<const uint8_t*>(content.data()), content.size()));
}

void ZipWriter::add(std::string_view name, std::span<const uint8_t> content) {
  const auto path = fmt::format("{}/{}", folder_, name);
  TORCH_CHECK(path.size() < 1024, "the name of an archive's entry is too long: ", path);
  const auto crc = libdeflate_crc32(0, content.data(), content.size());
  names_crc_ = libdeflate_crc32(names_crc_, path.data(), path.size());
  contents_crc_ = libdeflate_crc32(contents_crc_, &crc, sizeof(crc));
  const auto offset = position_;

  auto extra = zip64_extra(content.size(), 0);
  extra += padding_extra(offset + kLocalHeaderSize + path.size() + extra.size());
  std::string header;
  append(header, kLocalHeader);
  append_common(header, crc, content.size(), path.size(), extra.size());
  write(header + path + extra);
  write({reinterpret_cast<const char*>(content.data()), content.size()});

  extra = zip64_extra(content.size(), offset);
  append(central_directory_, kCentralHeader);
  append(central_directory_, kVersion64);
  append_common(central_directory_, crc, content.size(), path.size(), extra.size());
  append(central_directory_, uint16_t{0});  // no comment
  append(central_directory_, uint16_t{0});  // on the first disk
  append(central_directory_, uint16_t{0});  // attributes
  append(central_directory_, uint32_t{0});
  append(central_directory_, saturated(offset));
  central_directory_ += path + extra;
  ++num_entries_;
}

std::string ZipWriter::content_id() const { return fmt::format("{:020}{:020}", names_crc_, contents_crc_); }

void ZipWriter::finish() {
  const auto offset = position_;
  const uint64_t size = central_directory_.size();
  write(central_directory_);
  std::string end;
  if (offset >= kIn64 || size >= kIn64 || num_entries_ >= kCountIn64) {
    append(end, kEnd64);
    append(end, uint64_t{kEnd64Size - 12});  // size of the record after this field
    append(end, kVersion64);
    append(end, kVersion64);
    append(end, uint32_t{0});  // the only disk
    append(end, uint32_t{0});
    for (const auto value : {num_entries_, num_entries_, size, offset}) append(end, value);
    append(end, kEnd64Locator);
    append(end, uint32_t{0});
    append(end, position_);
    append(end, uint32_t{1});
  }
  append(end, kEnd);
  append(end, uint32_t{0});
  append(end, saturated_count(num_entries_));
  append(end, saturated_count(num_entries_));
  append(end, saturated(size));
  append(end, saturated(offset));
  append(end, uint16_t{0});  // no comment
  write(end);
}

void ZipWriter::write(std::string_view bytes) {
  output_.write(bytes);
  position_ += bytes.size();
}

}  // namespace trainer::checkpoint
