#include "reporting/event_file.h"

#include <array>
#include <bit>
#include <numeric>
#include <span>

#include "base/bytes.h"
#include "reporting/drawing/draw.h"

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

EventFile::EventFile(const std::filesystem::path& file, double time) : file_(file) {
  std::string event;
  append_double(event, 1, time);
  append_bytes(event, 3, "brain.Event:2");
  file_.write(make_record(event));
}

void EventFile::write(double time, int64_t step, const EventValues& values) {
  std::string event;
  append_double(event, 1, time);
  append_int64(event, 2, step);
  append_bytes(event, 5, values.bytes());
  file_.write(make_record(event));
}

namespace {

// The field numbers of HParamsPluginData.
enum class SessionRecord : unsigned { kStart = 3, kEnd = 4 };

std::string start_value(std::string_view tag) {
  std::string value;
  append_bytes(value, 1, tag);
  return value;
}

// SummaryMetadata: the page that shows the value, and the data for that page.
std::string metadata(std::string_view plugin, std::string_view content = "") {
  std::string data;
  append_bytes(data, 1, plugin);
  if (!content.empty()) append_bytes(data, 2, content);
  std::string metadata;
  append_bytes(metadata, 1, data);
  return metadata;
}

void append_doubles(std::string& out, unsigned field, std::span<const double> values) {
  std::string packed;
  for (const double value : values) little_endian::append(packed, std::bit_cast<uint64_t>(value));
  append_bytes(out, field, packed);
}

// google.protobuf.Value
std::string value_of(const HParam& hparam) {
  std::string value;
  if (const auto* number = std::get_if<double>(&hparam.value)) append_double(value, 2, *number);
  if (const auto* text = std::get_if<std::string>(&hparam.value)) append_bytes(value, 3, *text);
  if (const auto* flag = std::get_if<bool>(&hparam.value)) append_int64(value, 4, *flag ? 1 : 0);
  return value;
}

void append_session_record(std::string& out, std::string_view tag, SessionRecord kind, const std::string& record) {
  std::string content;
  append_bytes(content, static_cast<unsigned>(kind), record);
  auto value = start_value(tag);
  append_bytes(value, 9, metadata("hparams", content));
  append_bytes(out, 1, value);
}

}  // namespace

void EventValues::add_scalar(std::string_view tag, double scalar) {
  auto value = start_value(tag);
  append_float(value, 2, static_cast<float>(scalar));
  append_bytes(bytes_, 1, value);
}

void EventValues::add_text(std::string_view tag, std::string_view markdown) {
  constexpr int64_t kStringType = 7;
  std::string dimension;
  append_int64(dimension, 1, 1);
  std::string shape;
  append_bytes(shape, 2, dimension);
  std::string tensor;
  append_int64(tensor, 1, kStringType);
  append_bytes(tensor, 2, shape);
  append_bytes(tensor, 8, markdown);
  auto value = start_value(tag);
  append_bytes(value, 8, tensor);
  append_bytes(value, 9, metadata("text"));
  append_bytes(bytes_, 1, value);
}

void EventValues::add_image(std::string_view tag, const drawing::RgbImage& image, std::string_view description) {
  constexpr int64_t kRgb = 3;
  std::string content;
  append_int64(content, 1, image.height);
  append_int64(content, 2, image.width);
  append_int64(content, 3, kRgb);
  append_bytes(content, 4, drawing::encode_png(image));
  auto value = start_value(tag);
  append_bytes(value, 4, content);
  auto about = metadata("images");
  append_bytes(about, 3, description);
  append_bytes(value, 9, about);
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

// Writes no record of the experiment. TensorBoard would use the record of one run for all runs, and omit hyperparameters that only other
// runs have; without a record it combines the hyperparameters of all runs and finds those that differ.
void EventValues::add_session_start(const std::vector<HParam>& hparams, double time) {
  std::string record;
  for (const auto& hparam : hparams) {
    std::string entry;
    append_bytes(entry, 1, hparam.name);
    append_bytes(entry, 2, value_of(hparam));
    append_bytes(record, 1, entry);
  }
  append_double(record, 5, time);
  append_session_record(bytes_, "_hparams_/session_start_info", SessionRecord::kStart, record);
}

void EventValues::add_session_end(bool is_success, double time) {
  std::string record;
  append_int64(record, 1, is_success ? 1 : 2);
  append_double(record, 2, time);
  append_session_record(bytes_, "_hparams_/session_end_info", SessionRecord::kEnd, record);
}

}  // namespace trainer::reporting
