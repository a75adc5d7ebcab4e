#pragma once
// TensorBoard's event files, written without protobuf: TFRecords (tensorflow/core/lib/io/record_writer.cc), each holding one Event
// (tensorflow/core/util/event.proto) in protobuf's wire format.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"
#include "reporting/event_values.h"

namespace trainer::reporting {

// CRC-32C (Castagnoli), RFC 3720.
uint32_t crc32c(std::string_view bytes);

// A TFRecord: the length of `data`, `data`, and the masked checksum of each after it, all little-endian.
std::string make_record(std::string_view data);

class EventFile {
 public:
  // Starts the file with the version event. Times are Unix seconds. Throws Error if the file cannot be written.
  EventFile(const std::filesystem::path& file, double time);
  // One event with all of `values`; passed to the operating system before the function returns.
  void write(double time, int64_t step, const EventValues& values);

 private:
  LineFile file_;
};

}  // namespace trainer::reporting
