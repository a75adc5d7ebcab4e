#pragma once
// Writes a zip archive of uncompressed entries in PyTorch's layout: each entry's bytes start at a multiple of 64, so they can be mapped.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"

namespace trainer::checkpoint {

class ZipWriter {
 public:
  // Entries are named `folder`/name. `output` must outlive the writer.
  ZipWriter(std::string folder, Output& output);

  void add(std::string_view name, std::span<const uint8_t> content);
  void add(std::string_view name, std::string_view content);
  // Identifies the archive's content: a checksum of the names and one of the contents.
  std::string content_id() const;
  // Writes the central directory. Nothing can be added afterwards.
  void finish();

 private:
  void write(std::string_view bytes);

  std::string folder_;
  Output& output_;
  uint64_t position_ = 0;
  uint64_t num_entries_ = 0;
  uint32_t names_crc_ = 0;
  uint32_t contents_crc_ = 0;
  std::string central_directory_;
};

}  // namespace trainer::checkpoint
