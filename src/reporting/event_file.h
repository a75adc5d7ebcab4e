#pragma once
// TensorBoard's event files, written without protobuf: TFRecords (tensorflow/core/lib/io/record_writer.cc), each holding one Event
// (tensorflow/core/util/event.proto) in protobuf's wire format.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"

namespace trainer::reporting {

// CRC-32C (Castagnoli), RFC 3720.
uint32_t crc32c(std::string_view bytes);

// A TFRecord: the length of `data`, `data`, and the masked checksums of both, all little-endian.
std::string make_record(std::string_view data);

struct Scalar {
  std::string tag;
  double value = 0;  // stored as float32
};

class EventFile {
 public:
  // Begins the file with the version event. Times are Unix seconds. Throws Error when the file cannot be written.
  EventFile(const std::filesystem::path& file, double time);
  // One event with all of `scalars`; passed to the system before the function returns.
  void write(double time, int64_t step, std::span<const Scalar> scalars);

 private:
  LineFile file_;
};

}  // namespace trainer::reporting
