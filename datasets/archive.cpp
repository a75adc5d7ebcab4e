#include "datasets/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include "base/bytes.h"
#include "base/file.h"
#include "base/signal.h"
#include "datasets/download.h"
#include "datasets/files.h"
#include "trainer/error.h"

// Functions here throw std::runtime_error with the reason; install() adds the URL and what to do.

namespace trainer::datasets {
namespace {

namespace fs = std::filesystem;

// The path of an entry. Throws unless it is a file or folder inside the folder to which the archive is unpacked.
fs::path checked_path(const fs::path& path, bool is_special) {
  bool inside = !path.empty() && path.is_relative();
  for (const auto& part : path) inside = inside && part != "..";
  if (!inside) throw std::runtime_error(fmt::format("the archive is refused: it contains the unsafe path \"{}\"", path.string()));
  if (is_special)
    throw std::runtime_error(
        fmt::format("the archive is refused: it contains \"{}\", which is neither a file nor a folder", path.string()));
  return path;
}

void check(archive* reader, int64_t result) {
  if (result < ARCHIVE_WARN) throw std::runtime_error(fmt::format("the archive cannot be unpacked: {}", archive_error_string(reader)));
}

// A file that is being unpacked.
class UnpackedFile {
 public:
  explicit UnpackedFile(fs::path path) : path_(std::move(path)), file_(nullptr, std::fclose) {
    if (stop_signal() != 0) throw Error("stopped on request while unpacking " + path_.string(), ExitCode::kStopped);
    create_folders(path_.parent_path());
    file_.reset(std::fopen(path_.c_str(), "wbxe"));
    if (!file_) fail_with_errno("write", path_);
  }
  void write(std::span<const uint8_t> bytes) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) fail_with_errno("write", path_);
  }
  void finish() {
    if (std::fflush(file_.get()) != 0) fail_with_errno("write", path_);
  }

 private:
  fs::path path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

void unpack_tar(const fs::path& file, const fs::path& folder) {
  const std::unique_ptr<archive, decltype(&archive_read_free)> owner(archive_read_new(), archive_read_free);
  archive* reader = owner.get();
  check(reader, archive_read_support_format_tar(reader));
  check(reader, archive_read_support_filter_gzip(reader));
  check(reader, archive_read_open_filename(reader, file.c_str(), size_t{1} << 16));
  std::vector<uint8_t> buffer(size_t{1} << 16);
  archive_entry* entry = nullptr;
  while (true) {
    const int result = archive_read_next_header(reader, &entry);
    if (result == ARCHIVE_EOF) break;
    check(reader, result);
    const auto type = archive_entry_filetype(entry);
    const char* name = archive_entry_pathname(entry);
    const auto path = folder / checked_path(name != nullptr ? name : "", type != AE_IFREG && type != AE_IFDIR);
    if (type == AE_IFDIR) {
      create_folders(path);
      continue;
    }
    UnpackedFile output(path);
    while (true) {
      const la_ssize_t size = archive_read_data(reader, buffer.data(), buffer.size());
      check(reader, size);
      if (size <= 0) break;
      output.write(std::span<const uint8_t>(buffer).first(static_cast<size_t>(size)));
    }
    output.finish();
  }
}

// Does not use libarchive, whose support of zip files needs more libraries.
void unpack_zip(std::span<const uint8_t> bytes, const fs::path& folder) {
  for (const auto& entry : list_zip(bytes)) {
    const auto path = folder / checked_path(entry.path, entry.is_special);
    if (entry.is_folder) {
      create_folders(path);
      continue;
    }
    UnpackedFile output(path);
    read_zip_entry(bytes, entry, [&output](std::span<const uint8_t> part) { output.write(part); });
    output.finish();
  }
}

void unpack(const fs::path& file, const fs::path& folder) {
  create_folders(folder);
  const MappedFile map(file);
  if (is_zip(map.bytes())) {
    unpack_zip(map.bytes(), folder);
  } else {
    unpack_tar(file, folder);
  }
}

}  // namespace

void PublishedOptions::describe_place(KeyTable& keys, const std::string& own_folders, const std::string& more) {
  keys.add("root", root,
           {.doc = fmt::format("The parent of the data set's folder ({}), or that folder itself.{}", own_folders, more), .is_path = true});
  keys.set_facts("root", {.affects_features = true, .samples = KeyFacts::Samples::kAll});
  keys.add("download", download, {.doc = "Download the data set into `root` if it is missing."});
  keys.refuse("root", [this] { return root.empty() ? "it is empty; set it to a folder, or to . for the current one" : ""; });
}

void fetch_archive(const ArchiveSource& source, const std::filesystem::path& root, Logger& logger) {
  install({.root = root, .folder = source.folder, .url = source.url, .by_hand = "unpack that archive by hand so that its files are in"},
          logger, [&](const fs::path& partial) {
            download(source.url, {"MD5", source.md5}, partial / "archive", source.limits, logger);
            unpack(partial / "archive", partial / "content");
            auto folder = partial / "content" / source.folder;
            if (!fs::is_directory(folder)) throw std::runtime_error("the archive contains no folder " + source.folder);
            return folder;
          });
}

void fetch_files(const FilesSource& source, const std::filesystem::path& root, Logger& logger) {
  install({.root = root, .folder = source.folder, .url = source.url, .by_hand = "download its files by hand into"}, logger,
          [&](const fs::path& partial) {
            auto folder = partial / "content";
            create_folders(folder);
            for (const auto& file : source.files) {
              try {
                download(source.url + file.name, {"MD5", file.md5}, folder / file.name, source.limits, logger);
              } catch (const Error&) {
                throw;
              } catch (const std::runtime_error& reason) {
                throw std::runtime_error(fmt::format("{}: {}", file.name, reason.what()));
              }
            }
            return folder;
          });
}

// The constants are from PKWARE's APPNOTE.TXT: offsets of fields in a record, and lengths of records without their variable parts.

namespace {

using Bytes = std::span<const uint8_t>;

[[noreturn]] void fail_zip(const std::string& reason) { throw std::runtime_error("the archive cannot be unpacked: " + reason); }

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kCentralHeader = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kEnd64Locator = 0x07064b50;
constexpr size_t kLocalHeaderBytes = 30;
constexpr size_t kCentralHeaderBytes = 46;
constexpr size_t kEndBytes = 22;
constexpr size_t kEnd64LocatorBytes = 20;
// The values of 32-bit and 16-bit fields whose actual values are in a zip64 record.
constexpr auto kIn64 = std::numeric_limits<uint32_t>::max();
constexpr auto kIn64Short = std::numeric_limits<uint16_t>::max();

Bytes slice(Bytes bytes, uint64_t offset, uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) fail_zip("a part of the file is missing");
  return bytes.subspan(offset, size);
}

template <std::unsigned_integral T>
T field(Bytes bytes, uint64_t offset) {
  return little_endian::load<T>(slice(bytes, offset, sizeof(T)).data());
}

Bytes record(Bytes bytes, uint64_t offset, size_t size, uint32_t signature) {
  const auto part = slice(bytes, offset, size);
  if (field<uint32_t>(part, 0) != signature) fail_zip(fmt::format("the record at byte {} is damaged", offset));
  return part;
}

// The position of the last record of the file, after which only a comment of up to 65,535 bytes may follow.
uint64_t find_end(Bytes bytes) {
  for (uint64_t comment = 0; comment <= kIn64Short && bytes.size() >= kEndBytes + comment; ++comment) {
    const auto offset = bytes.size() - kEndBytes - comment;
    if (field<uint32_t>(bytes, offset) == kEnd && field<uint16_t>(bytes, offset + 20) == comment) return offset;
  }
  fail_zip("the end of the file is missing");
}

struct Directory {
  uint64_t num_entries = 0;
  uint64_t offset = 0;
};

Directory find_directory(Bytes bytes) {
  const auto end = find_end(bytes);
  const Directory directory{field<uint16_t>(bytes, end + 10), field<uint32_t>(bytes, end + 16)};
  if (directory.num_entries != kIn64Short && directory.offset != kIn64) return directory;
  if (end < kEnd64LocatorBytes || field<uint32_t>(bytes, end - kEnd64LocatorBytes) != kEnd64Locator) return directory;
  const auto end64 = record(bytes, field<uint64_t>(bytes, end - kEnd64LocatorBytes + 8), 56, kEnd64);
  return {field<uint64_t>(end64, 32), field<uint64_t>(end64, 48)};
}

// Replaces the sizes and offsets that do not fit into 32 bits by the values of the zip64 extra field, which contains no other values.
void widen(ZipEntry& entry, Bytes extra) {
  constexpr uint16_t kZip64 = 1;
  while (extra.size() >= 4) {
    const auto id = field<uint16_t>(extra, 0);
    auto content = slice(extra, 4, field<uint16_t>(extra, 2));
    extra = extra.subspan(4 + content.size());
    if (id != kZip64) continue;
    for (uint64_t* value : {&entry.num_bytes, &entry.compressed_bytes, &entry.offset}) {
      if (*value != kIn64) continue;
      *value = field<uint64_t>(content, 0);
      content = content.subspan(8);
    }
  }
}

bool is_special(Bytes header) {
  constexpr uint8_t kUnix = 3;
  if (header[5] != kUnix) return false;
  const auto type = field<uint16_t>(header, 40) & S_IFMT;
  return type != 0 && type != S_IFREG && type != S_IFDIR;
}

}  // namespace

bool is_zip(std::span<const uint8_t> bytes) {
  return bytes.size() >= sizeof(uint32_t) && (field<uint32_t>(bytes, 0) == kLocalHeader || field<uint32_t>(bytes, 0) == kEnd);
}

std::vector<ZipEntry> list_zip(std::span<const uint8_t> bytes) {
  const auto directory = find_directory(bytes);
  std::vector<ZipEntry> entries;
  uint64_t offset = directory.offset;
  for (uint64_t i = 0; i < directory.num_entries; ++i) {
    const auto header = record(bytes, offset, kCentralHeaderBytes, kCentralHeader);
    const auto name = slice(bytes, offset + kCentralHeaderBytes, field<uint16_t>(header, 28));
    const auto extra = slice(bytes, offset + kCentralHeaderBytes + name.size(), field<uint16_t>(header, 30));
    ZipEntry entry{.path = {name.begin(), name.end()},
                   .is_folder = !name.empty() && name.back() == '/',
                   .is_special = is_special(header),
                   .is_encrypted = (field<uint16_t>(header, 8) & 1) != 0,
                   .method = field<uint16_t>(header, 10),
                   .checksum = field<uint32_t>(header, 16),
                   .compressed_bytes = field<uint32_t>(header, 20),
                   .num_bytes = field<uint32_t>(header, 24),
                   .offset = field<uint32_t>(header, 42)};
    widen(entry, extra);
    entries.push_back(std::move(entry));
    offset += kCentralHeaderBytes + name.size() + extra.size() + field<uint16_t>(header, 32);
  }
  return entries;
}

void read_zip_entry(std::span<const uint8_t> bytes, const ZipEntry& entry, const std::function<void(std::span<const uint8_t>)>& take) {
  constexpr uint16_t kStored = 0;
  constexpr uint16_t kDeflated = 8;
  const auto header = record(bytes, entry.offset, kLocalHeaderBytes, kLocalHeader);
  const auto offset = entry.offset + kLocalHeaderBytes + field<uint16_t>(header, 26) + field<uint16_t>(header, 28);
  const auto content = slice(bytes, offset, entry.compressed_bytes);
  if (entry.is_encrypted) fail_zip(fmt::format("the entry \"{}\" is encrypted", entry.path));
  uint64_t num_bytes = 0;
  auto checksum = crc32_z(0, nullptr, 0);
  const auto count = [&](std::span<const uint8_t> part) {
    num_bytes += part.size();
    checksum = crc32_z(checksum, part.data(), part.size());
    if (!part.empty()) take(part);
  };
  if (entry.method == kStored) {
    count(content);
  } else if (entry.method == kDeflated) {
    inflate_all(content, Deflated::kRaw, count);
  } else {
    fail_zip(fmt::format("the entry \"{}\" has the unsupported compression method {}", entry.path, entry.method));
  }
  if (num_bytes != entry.num_bytes || checksum != entry.checksum) fail_zip(fmt::format("the entry \"{}\" is damaged", entry.path));
}

}  // namespace trainer::datasets
