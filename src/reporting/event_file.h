#pragma once
// TensorBoard's event files, written without protobuf: TFRecords (tensorflow/core/lib/io/record_writer.cc), each holding one Event
// (tensorflow/core/util/event.proto) in protobuf's wire format.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file.h"
#include "reporting/drawing/draw.h"
#include "trainer/events.h"

namespace trainer::reporting {

// A hyperparameter: one value of the configuration.
struct HParam {
  std::string name;
  std::variant<double, bool, std::string> value;
};

// The values of one TensorBoard event: tensorflow/core/framework/summary.proto in protobuf's wire format, with the same fields as
// torch.utils.tensorboard writes. A tag names a value; TensorBoard groups tags by the part before the first slash.
class EventValues {
 public:
  // Written as float32.
  void add_scalar(std::string_view tag, double value);
  // `markdown`: shown on the page TEXT.
  void add_text(std::string_view tag, std::string_view markdown);
  // `description`: Markdown that the page shows on request.
  void add_image(std::string_view tag, const drawing::RgbImage& image, std::string_view description);
  void add_histogram(std::string_view tag, const Histogram& histogram);
  // For the page HPARAMS: the beginning of a run with these hyperparameters, and its end. Times are in Unix seconds.
  void add_session_start(const std::vector<HParam>& hparams, double time);
  void add_session_end(bool is_success, double time);

  bool is_empty() const { return bytes_.empty(); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// CRC-32C (Castagnoli), RFC 3720.
uint32_t crc32c(std::string_view bytes);

// A TFRecord: the length of `data` and its masked checksum, then `data` and its masked checksum; numbers are little-endian.
std::string make_record(std::string_view data);

class EventFile {
 public:
  // Creates the file with the version event. Times are in Unix seconds. Throws Error if the file cannot be written.
  EventFile(const std::filesystem::path& file, double time);
  // Writes one event with all of `values`, and passes it to the operating system before returning.
  void write(double time, int64_t step, const EventValues& values);

 private:
  LineFile file_;
};

}  // namespace trainer::reporting
