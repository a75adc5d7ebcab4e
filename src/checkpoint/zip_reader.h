#pragma once
// Reads the central directory and the entries of a zip archive that may be damaged or hostile.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/budget.h"

namespace trainer::checkpoint {

struct ZipEntry {
  std::string_view name;
  uint64_t header_offset;  // all offsets are from the start of the archive
  uint64_t offset;
  uint64_t end;          // of the bytes and their data descriptor
  uint64_t size;         // bytes in the archive
  uint64_t num_content;  // bytes when uncompressed
  uint32_t crc;
  uint16_t flags;
  uint16_t method;
};

// Every function throws CheckpointError if it refuses the archive.
class ZipReader {
 public:
  // Verifies that all headers are inside the file, that the central directory and the local headers agree, and that no two entries have
  // the same name or overlap. `bytes` must outlive the reader.
  ZipReader(std::span<const uint8_t> bytes, std::string source, Budget& budget);

  // Sorted by name.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  // nullptr if no entry has this name.
  const ZipEntry* find(std::string_view name) const;

  // Verifies the checksum. Refuses entries that are compressed or encrypted.
  std::span<const uint8_t> read(const ZipEntry& entry) const;
  // The same, copied to `destination`, which has `entry.size` bytes.
  void copy(const ZipEntry& entry, uint8_t* destination) const;

 private:
  struct Directory {
    uint64_t num_entries;
    uint64_t offset;
    uint64_t size;
  };

  Directory find_directory() const;
  Directory find_directory64(uint64_t end, const Directory& in_end) const;
  void read_directory(const Directory& directory, Budget& budget);
  size_t read_central_header(std::span<const uint8_t> rest, const Directory& directory);
  void check_local_header(ZipEntry& entry, const Directory& directory) const;
  void check_descriptor(ZipEntry& entry, const Directory& directory) const;
  void check_overlaps(Budget& budget) const;
  void check_stored(const ZipEntry& entry) const;
  [[noreturn]] void refuse_checksum(const ZipEntry& entry) const;
  [[noreturn]] void refuse_entry(const ZipEntry& entry, std::string_view what) const;

  std::span<const uint8_t> bytes_;
  std::string source_;
  std::vector<ZipEntry> entries_;
};

}  // namespace trainer::checkpoint
