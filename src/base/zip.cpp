#include "base/zip.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "base/bytes.h"
#include "base/text.h"

namespace trainer {
namespace {

using little_endian::load;

// The records of a zip archive (PKWARE's APPNOTE.TXT 6.3). Sizes are in bytes.
constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDataDescriptor = 0x08074b50;
constexpr uint32_t kCentralHeader = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kEnd64Locator = 0x07064b50;

constexpr size_t kLocalHeaderSize = 30;
constexpr size_t kCentralHeaderSize = 46;
constexpr size_t kEndSize = 22;
constexpr size_t kEnd64Size = 56;
constexpr size_t kEnd64LocatorSize = 20;

// A field with one of these values has its actual value in a zip64 record.
constexpr uint32_t kIn64 = 0xffffffff;
constexpr uint16_t kCountIn64 = 0xffff;
// The id of the extra field that contains these actual values.
constexpr uint16_t kExtra64 = 1;

constexpr uint16_t kDescriptorFlag = 1 << 3;

std::string_view as_text(std::span<const uint8_t> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

[[noreturn]] void refuse(const std::string& reason) { throw std::runtime_error(reason); }

[[noreturn]] void refuse_entry(const ZipEntry& entry, std::string_view what) {
  refuse(fmt::format("entry {} {}", in_quotes(entry.name), what));
}

// Returns the extra field with the 64-bit values that do not fit into a header; empty if there is none.
std::span<const uint8_t> find_extra64(std::span<const uint8_t> extra) {
  while (extra.size() >= 4) {
    const auto id = load<uint16_t>(extra.data());
    const size_t size = load<uint16_t>(&extra[2]);
    if (size > extra.size() - 4) return {};
    if (id == kExtra64) return extra.subspan(4, size);
    extra = extra.subspan(4 + size);
  }
  return {};
}

// Returns the value of a header's field, or the next number of the zip64 field if the header refers to it; nullopt if that number is
// missing.
std::optional<uint64_t> resolve(uint32_t field, std::span<const uint8_t>& extra64) {
  if (field != kIn64) return field;
  if (extra64.size() < 8) return std::nullopt;
  const auto value = load<uint64_t>(extra64.data());
  extra64 = extra64.subspan(8);
  return value;
}

bool is_special(std::span<const uint8_t> central_header) {
  constexpr uint8_t kUnix = 3;
  if (central_header[5] != kUnix) return false;
  const auto type = load<uint16_t>(&central_header[40]) & S_IFMT;
  return type != 0 && type != S_IFREG && type != S_IFDIR;
}

}  // namespace

bool is_zip(std::span<const uint8_t> bytes) {
  return bytes.size() >= sizeof(uint32_t) && (load<uint32_t>(bytes.data()) == kLocalHeader || load<uint32_t>(bytes.data()) == kEnd);
}

ZipDirectory::ZipDirectory(std::span<const uint8_t> bytes) : bytes_(bytes) { read_directory(find_directory()); }

// The file must end with the end record, without a comment.
ZipDirectory::Directory ZipDirectory::find_directory() const {
  if (bytes_.size() < kEndSize || load<uint32_t>(&bytes_[bytes_.size() - kEndSize]) != kEnd) {
    refuse("the end of the file is missing");
  }
  const uint64_t position = bytes_.size() - kEndSize;
  const auto* end = &bytes_[position];
  if (load<uint32_t>(end + 4) != 0 || load<uint16_t>(end + 8) != load<uint16_t>(end + 10) || load<uint16_t>(end + 20) != 0) {
    refuse("the record at its end is not valid: it describes an archive with a comment or in several parts");
  }
  const Directory in_end{load<uint16_t>(end + 10), load<uint32_t>(end + 16), load<uint32_t>(end + 12)};
  const bool has_locator =
      position >= kEnd64LocatorSize + kEnd64Size && load<uint32_t>(&bytes_[position - kEnd64LocatorSize]) == kEnd64Locator;
  const auto directory = has_locator ? find_directory64(position - kEnd64LocatorSize, in_end) : in_end;
  const auto directory_end = has_locator ? position - kEnd64LocatorSize - kEnd64Size : position;
  if (directory.offset > directory_end || directory.size != directory_end - directory.offset) {
    refuse(
        fmt::format("its directory has {} bytes at byte {}, but it must end at byte {}", directory.size, directory.offset, directory_end));
  }
  return directory;
}

ZipDirectory::Directory ZipDirectory::find_directory64(uint64_t locator, const Directory& in_end) const {
  const uint64_t position = locator - kEnd64Size;
  const auto* end = &bytes_[position];
  const Directory directory{load<uint64_t>(end + 32), load<uint64_t>(end + 48), load<uint64_t>(end + 40)};
  const auto agree = [](uint64_t field, uint64_t value, uint64_t in64) { return field == value || field == in64; };
  if (load<uint32_t>(&bytes_[locator + 4]) != 0 || load<uint64_t>(&bytes_[locator + 8]) != position ||
      load<uint32_t>(&bytes_[locator + 16]) != 1 || load<uint32_t>(end) != kEnd64 || load<uint64_t>(end + 4) != kEnd64Size - 12 ||
      load<uint64_t>(end + 16) != 0 || load<uint64_t>(end + 24) != directory.num_entries ||
      !agree(in_end.num_entries, directory.num_entries, kCountIn64) || !agree(in_end.offset, directory.offset, kIn64) ||
      !agree(in_end.size, directory.size, kIn64)) {
    refuse("the two records at its end contradict each other");
  }
  return directory;
}

void ZipDirectory::read_directory(const Directory& directory) {
  if (directory.num_entries > directory.size / kCentralHeaderSize) {
    refuse(fmt::format("{} entries do not fit into its directory of {} bytes", directory.num_entries, directory.size));
  }
  entries_.reserve(directory.num_entries);
  auto rest = bytes_.subspan(directory.offset, directory.size);
  while (entries_.size() < directory.num_entries) rest = rest.subspan(read_central_header(rest, directory));
  if (!rest.empty()) refuse(fmt::format("its directory has {} bytes after its last entry", rest.size()));
  std::ranges::sort(entries_, {}, &ZipEntry::name);
  const auto duplicate = std::ranges::adjacent_find(entries_, {}, &ZipEntry::name);
  if (duplicate != entries_.end()) refuse_entry(*duplicate, "occurs twice");
  for (auto& entry : entries_) check_local_header(entry, directory);
  check_overlaps();
}

// Adds the entry whose header is at the beginning of `rest`, and returns the header's size.
size_t ZipDirectory::read_central_header(std::span<const uint8_t> rest, const Directory& directory) {
  const auto here = fmt::format("entry {} of its directory", entries_.size());
  if (rest.size() < kCentralHeaderSize || load<uint32_t>(rest.data()) != kCentralHeader) refuse(here + " is not a valid entry");
  const size_t name_size = load<uint16_t>(&rest[28]);
  const size_t extra_size = load<uint16_t>(&rest[30]);
  const size_t size = kCentralHeaderSize + name_size + extra_size + load<uint16_t>(&rest[32]);
  if (size > rest.size()) refuse(here + " is longer than the directory");
  ZipEntry entry{};
  entry.name = as_text(rest.subspan(kCentralHeaderSize, name_size));
  auto extra64 = find_extra64(rest.subspan(kCentralHeaderSize + name_size, extra_size));
  const auto num_content = resolve(load<uint32_t>(&rest[24]), extra64);
  const auto num_stored = resolve(load<uint32_t>(&rest[20]), extra64);
  const auto header_offset = resolve(load<uint32_t>(&rest[42]), extra64);
  if (!num_content || !num_stored || !header_offset || load<uint16_t>(&rest[34]) != 0) {
    refuse_entry(entry, "has no valid size or offset in the directory");
  }
  entry.flags = load<uint16_t>(&rest[8]);
  entry.is_special = is_special(rest);
  entry.method = load<uint16_t>(&rest[10]);
  entry.crc = load<uint32_t>(&rest[16]);
  entry.num_content = *num_content;
  entry.size = *num_stored;
  entry.header_offset = *header_offset;
  check_place(entry, entry.header_offset, kLocalHeaderSize, directory);
  entries_.push_back(entry);
  return size;
}

void ZipDirectory::check_place(const ZipEntry& entry, uint64_t begin, uint64_t header_size, const Directory& directory) const {
  if (begin <= directory.offset && directory.offset - begin >= header_size && entry.size <= directory.offset - begin - header_size) return;
  refuse_entry(entry,
               fmt::format("has {} bytes from byte {} on, which overlap the archive's directory or are beyond it", entry.size, begin));
}

// Also sets entry.offset, the offset of the entry's content.
void ZipDirectory::check_local_header(ZipEntry& entry, const Directory& directory) const {
  const auto* header = &bytes_[entry.header_offset];
  if (load<uint32_t>(header) != kLocalHeader) {
    refuse_entry(entry, fmt::format("is not at byte {}, where the directory places it", entry.header_offset));
  }
  const size_t name_size = load<uint16_t>(header + 26);
  const size_t extra_size = load<uint16_t>(header + 28);
  entry.offset = entry.header_offset + kLocalHeaderSize + name_size + extra_size;
  check_place(entry, entry.offset, 0, directory);
  const auto behind = bytes_.subspan(entry.header_offset + kLocalHeaderSize, name_size + extra_size);
  auto extra64 = find_extra64(behind.subspan(name_size));
  const auto num_content = resolve(load<uint32_t>(header + 22), extra64);
  const auto num_stored = resolve(load<uint32_t>(header + 18), extra64);
  const auto crc = load<uint32_t>(header + 14);
  // If a data descriptor follows the content, the header may have been written before sizes and checksum were known.
  const bool is_early = (entry.flags & kDescriptorFlag) != 0;
  const auto agree = [&](uint64_t field, uint64_t value) { return field == value || (is_early && field == 0); };
  if (as_text(behind.first(name_size)) != entry.name || load<uint16_t>(header + 6) != entry.flags ||
      load<uint16_t>(header + 8) != entry.method || !agree(crc, entry.crc) || !num_content || !agree(*num_content, entry.num_content) ||
      !num_stored || !agree(*num_stored, entry.size)) {
    refuse_entry(entry, "has a local header that contradicts the directory");
  }
  check_descriptor(entry, directory);
}

// The data descriptor follows the content; its size fields have 4 or 8 bytes each. Also sets entry.end.
void ZipDirectory::check_descriptor(ZipEntry& entry, const Directory& directory) const {
  constexpr uint64_t kSize = 16;
  constexpr uint64_t kSize64 = 24;
  entry.end = entry.offset + entry.size;
  if ((entry.flags & kDescriptorFlag) == 0) return;
  const auto rest = bytes_.subspan(entry.end, directory.offset - entry.end);
  const auto* descriptor = rest.data();
  const bool is_one = rest.size() >= kSize && load<uint32_t>(descriptor) == kDataDescriptor && load<uint32_t>(descriptor + 4) == entry.crc;
  if (is_one && load<uint32_t>(descriptor + 8) == entry.size && load<uint32_t>(descriptor + 12) == entry.num_content) {
    entry.end += kSize;
  } else if (is_one && rest.size() >= kSize64 && load<uint64_t>(descriptor + 8) == entry.size &&
             load<uint64_t>(descriptor + 16) == entry.num_content) {
    entry.end += kSize64;
  } else {
    refuse_entry(entry, "has a data descriptor that contradicts the directory");
  }
}

void ZipDirectory::check_overlaps() const {
  std::vector<const ZipEntry*> order;
  order.reserve(entries_.size());
  for (const auto& entry : entries_) order.push_back(&entry);
  std::ranges::sort(order, {}, &ZipEntry::header_offset);
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i]->header_offset < order[i - 1]->end) refuse_entry(*order[i], "overlaps " + in_quotes(order[i - 1]->name));
  }
}

const ZipEntry* ZipDirectory::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(entries_, name, {}, &ZipEntry::name);
  return found == entries_.end() || found->name != name ? nullptr : &*found;
}

}  // namespace trainer
