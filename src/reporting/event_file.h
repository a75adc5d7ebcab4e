#pragma once
// The content of TensorBoard's event files, written without protobuf: TFRecords (tensorflow/core/lib/io/record_writer.cc), each holding one
// Event (tensorflow/core/util/event.proto) in protobuf's wire format.

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer/events.h"

namespace trainer::reporting {

// The values of one TensorBoard event: tensorflow/core/framework/summary.proto in protobuf's wire format, with the same fields as
// torch.utils.tensorboard writes. A tag names a value; TensorBoard groups tags by the part before the first slash.
class EventValues {
 public:
  // Written as float32.
  void add_scalar(std::string_view tag, double value);
  void add_histogram(std::string_view tag, const Histogram& histogram);

  bool is_empty() const { return bytes_.empty(); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// CRC-32C (Castagnoli), RFC 3720.
uint32_t crc32c(std::string_view bytes);

// A TFRecord: the length of `data` and its masked checksum, then `data` and its masked checksum; numbers are little-endian.
std::string make_record(std::string_view data);

// The record of an event with all of `values`, and the record with which a file begins. Times are in Unix seconds.
std::string make_event(double time, int64_t step, const EventValues& values);
std::string make_version_event(double time);

}  // namespace trainer::reporting
