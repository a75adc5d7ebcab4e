#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/zip.h"
#include "checkpoint/refusal.h"

namespace trainer::checkpoint {

// Reads the entries of a zip archive that may be damaged or hostile. All functions throw CheckpointError if the archive is invalid.
class ZipReader {
 public:
  // Throws like ZipDirectory. `bytes` and `budget` must outlive the reader.
  ZipReader(std::span<const uint8_t> bytes, std::string source, Budget& budget);

  const std::vector<ZipEntry>& entries() const { return directory_.entries(); }
  const ZipEntry* find(std::string_view name) const { return directory_.find(name); }

  // Returns an entry's content after verifying its checksum; if it is compressed, its memory is taken from the budget. Throws
  // CheckpointError if the entry is encrypted, or compressed by another method than deflate.
  std::span<const uint8_t> read(const ZipEntry& entry) const;
  // Like read(), but copies the content to `destination`, which has `entry.num_content` bytes.
  void copy(const ZipEntry& entry, uint8_t* destination) const;

 private:
  void check_method(const ZipEntry& entry) const;
  void inflate(const ZipEntry& entry, uint8_t* destination) const;
  [[noreturn]] void refuse_checksum(const ZipEntry& entry) const;
  [[noreturn]] void refuse_entry(const ZipEntry& entry, std::string_view what) const;

  std::string source_;
  Budget& budget_;
  ZipDirectory directory_;
  mutable std::deque<std::vector<uint8_t>> inflated_;  // results of read()
};

}  // namespace trainer::checkpoint
