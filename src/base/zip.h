#pragma once
// The entries of zip archives that may be damaged or hostile.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace trainer {

struct ZipEntry {
  static constexpr uint16_t kStored = 0;
  static constexpr uint16_t kDeflated = 8;

  std::string_view name;
  uint64_t header_offset;  // all offsets are from the start of the archive
  uint64_t offset;
  uint64_t end;          // end offset of the content and its data descriptor
  uint64_t size;         // number of bytes in the archive
  uint64_t num_content;  // number of bytes when uncompressed
  uint32_t crc;
  uint16_t flags;
  uint16_t method;  // kStored, kDeflated or another
  bool is_special;  // neither a file nor a folder, such as a link

  bool is_encrypted() const { return (flags & 1) != 0; }
};

// Whether the first bytes are those of a zip archive.
bool is_zip(std::span<const uint8_t> bytes);

// The directory at the end of a zip archive, also in the zip64 form.
class ZipDirectory {
 public:
  // Verifies that all headers are inside the file and agree, and that no two entries have the same name or overlap; the contents are not
  // read. `bytes` must outlive the object. Throws std::runtime_error with only the reason.
  explicit ZipDirectory(std::span<const uint8_t> bytes);

  // Sorted by name.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  // nullptr if no entry has this name.
  const ZipEntry* find(std::string_view name) const;
  // The bytes of an entry as they are stored.
  std::span<const uint8_t> stored(const ZipEntry& entry) const { return bytes_.subspan(entry.offset, entry.size); }

 private:
  struct Directory {
    uint64_t num_entries;
    uint64_t offset;
    uint64_t size;
  };

  Directory find_directory() const;
  Directory find_directory64(uint64_t end, const Directory& in_end) const;
  void read_directory(const Directory& directory);
  size_t read_central_header(std::span<const uint8_t> rest, const Directory& directory);
  // Refuses an entry whose header and content, from the byte `begin` on, do not end before the directory.
  void check_place(const ZipEntry& entry, uint64_t begin, uint64_t header_size, const Directory& directory) const;
  void check_local_header(ZipEntry& entry, const Directory& directory) const;
  void check_descriptor(ZipEntry& entry, const Directory& directory) const;
  void check_overlaps() const;

  std::span<const uint8_t> bytes_;
  std::vector<ZipEntry> entries_;
};

}  // namespace trainer
