#pragma once
// The directory of a zip archive that may be damaged or hostile, and the entries' bytes.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/budget.h"

namespace trainer::checkpoint {

struct ZipEntry {
  std::string_view name;
  uint64_t header_offset;  // in the archive, as all offsets
  uint64_t offset;
  uint64_t end;          // behind the bytes, and what belongs to them
  uint64_t size;         // bytes in the archive
  uint64_t num_content;  // bytes when unpacked
  uint32_t crc;
  uint16_t flags;
  uint16_t method;
};

// Every function throws CheckpointError for what it refuses.
class ZipReader {
 public:
  // Looks at all headers: that they lie in the file, that the directory's and the entries' own say the same, that no two entries have
  // one name or overlap. `bytes` must outlive the reader.
  ZipReader(std::span<const uint8_t> bytes, std::string source, Budget& budget);

  // By their names, ascending.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  // nullptr: there is none.
  const ZipEntry* find(std::string_view name) const;

  // Their checksum is compared. Refuses entries that are packed or encrypted.
  std::span<const uint8_t> read(const ZipEntry& entry) const;
  // The same into memory of `entry.size` bytes.
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
