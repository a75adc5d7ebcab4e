#include "reporting/event_file.h"

#include <array>
#include <bit>
#include <numeric>
#include <span>

#include "base/bytes.h"

namespace trainer::reporting {

using protobuf::append_bytes;
using protobuf::append_double;
using protobuf::append_float;
using protobuf::append_int64;

namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  constexpr uint32_t kReversedPolynomial = 0x82f63b78;
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReversedPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

constexpr auto kCrcTable = make_crc_table();

// TFRecord masks checksums, because a CRC of bytes that contain CRCs is weak.
uint32_t masked_crc32c(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8; }

std::string start_value(std::string_view tag) {
  std::string value;
  append_bytes(value, 1, tag);
  return value;
}

void append_doubles(std::string& out, unsigned field, std::span<const double> values) {
  std::string packed;
  for (const double value : values) little_endian::append(packed, std::bit_cast<uint64_t>(value));
  append_bytes(out, field, packed);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return ~crc;
}

std::string make_record(std::string_view data) {
  std::string record;
  little_endian::append(record, uint64_t{data.size()});
  little_endian::append(record, masked_crc32c(record));
  record += data;
  little_endian::append(record, masked_crc32c(data));
  return record;
}

std::string make_version_event(double time) {
  std::string event;
  append_double(event, 1, time);
  append_bytes(event, 3, "brain.Event:2");
  return make_record(event);
}

std::string make_event(double time, int64_t step, const EventValues& values) {
  std::string event;
  append_double(event, 1, time);
  append_int64(event, 2, step);
  append_bytes(event, 5, values.bytes());
  return make_record(event);
}

void EventValues::add_scalar(std::string_view tag, double scalar) {
  auto value = start_value(tag);
  append_float(value, 2, static_cast<float>(scalar));
  append_bytes(bytes_, 1, value);
}

void EventValues::add_histogram(std::string_view tag, const Histogram& histogram) {
  const std::vector<double> counts(histogram.counts.begin(), histogram.counts.end());
  std::string content;
  append_double(content, 1, histogram.min);
  append_double(content, 2, histogram.max);
  append_double(content, 3, std::accumulate(counts.begin(), counts.end(), 0.0));
  append_double(content, 4, histogram.sum);
  append_double(content, 5, histogram.sum_squares);
  append_doubles(content, 6, histogram.limits);
  append_doubles(content, 7, counts);
  auto value = start_value(tag);
  append_bytes(value, 5, content);
  append_bytes(bytes_, 1, value);
}

}  // namespace trainer::reporting
