#pragma once
// The records of a zip archive (PKWARE's APPNOTE.TXT 6.3). Sizes are in bytes.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/refusal.h"

namespace trainer::checkpoint::zip {

inline constexpr uint32_t kLocalHeader = 0x04034b50;
inline constexpr uint32_t kDataDescriptor = 0x08074b50;
inline constexpr uint32_t kCentralHeader = 0x02014b50;
inline constexpr uint32_t kEnd = 0x06054b50;
inline constexpr uint32_t kEnd64 = 0x06064b50;
inline constexpr uint32_t kEnd64Locator = 0x07064b50;

inline constexpr size_t kLocalHeaderSize = 30;
inline constexpr size_t kCentralHeaderSize = 46;
inline constexpr size_t kEndSize = 22;
inline constexpr size_t kEnd64Size = 56;
inline constexpr size_t kEnd64LocatorSize = 20;

// A field with one of these values has its actual value in a zip64 record.
inline constexpr uint32_t kIn64 = 0xffffffff;
inline constexpr uint16_t kCountIn64 = 0xffff;
// The id of the extra field that contains these actual values.
inline constexpr uint16_t kExtra64 = 1;

// The methods of compression that are read.
inline constexpr uint16_t kStored = 0;
inline constexpr uint16_t kDeflated = 8;

inline constexpr uint16_t kEncryptedFlag = 1 << 0;
inline constexpr uint16_t kDescriptorFlag = 1 << 3;

}  // namespace trainer::checkpoint::zip

namespace trainer::checkpoint {

// Reads the central directory and the entries of a zip archive that may be damaged or hostile. LibTorch's PyTorchStreamReader reads some
// entries when it opens an archive, into as much memory as the archive states, and allows that entries overlap.

struct ZipEntry {
  std::string_view name;
  uint64_t header_offset;  // all offsets are from the start of the archive
  uint64_t offset;
  uint64_t end;          // end offset of the content and its data descriptor
  uint64_t size;         // number of bytes in the archive
  uint64_t num_content;  // number of bytes when uncompressed
  uint32_t crc;
  uint16_t flags;
  uint16_t method;
};

// All functions throw CheckpointError if the archive is invalid.
class ZipReader {
 public:
  // Verifies that all headers are inside the file, that the central directory and the local headers agree, and that no two entries have
  // the same name or overlap. `bytes` and `budget` must outlive the reader.
  ZipReader(std::span<const uint8_t> bytes, std::string source, Budget& budget);

  // Sorted by name.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  // nullptr if no entry has this name.
  const ZipEntry* find(std::string_view name) const;

  // Returns an entry's content after verifying its checksum; if it is compressed, its memory is taken from the budget. Throws
  // CheckpointError if the entry is encrypted, or compressed by another method than deflate.
  std::span<const uint8_t> read(const ZipEntry& entry) const;
  // Like read(), but copies the content to `destination`, which has `entry.num_content` bytes.
  void copy(const ZipEntry& entry, uint8_t* destination) const;

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
  void check_method(const ZipEntry& entry) const;
  void inflate(const ZipEntry& entry, uint8_t* destination) const;
  [[noreturn]] void refuse_checksum(const ZipEntry& entry) const;
  [[noreturn]] void refuse_entry(const ZipEntry& entry, std::string_view what) const;

  std::span<const uint8_t> bytes_;
  std::string source_;
  Budget& budget_;
  std::vector<ZipEntry> entries_;
  mutable std::deque<std::vector<uint8_t>> inflated_;  // results of read()
};

}  // namespace trainer::checkpoint
