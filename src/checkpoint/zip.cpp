#include "checkpoint/zip.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <libdeflate.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "base/text.h"

namespace trainer::checkpoint {
namespace {

ZipDirectory read_directory(std::span<const uint8_t> bytes, const std::string& source) {
  try {
    return ZipDirectory(bytes);
  } catch (const std::runtime_error& reason) {
    refuse_damaged(source, reason.what());
  }
}

}  // namespace

ZipReader::ZipReader(std::span<const uint8_t> bytes, std::string source, Budget& budget)
    : source_(std::move(source)), budget_(budget), directory_(read_directory(bytes, source_)) {
  budget_.take(entries().size(), sizeof(ZipEntry));
}

std::span<const uint8_t> ZipReader::read(const ZipEntry& entry) const {
  check_method(entry);
  if (entry.method == ZipEntry::kDeflated) {
    budget_.take(entry.num_content);
    auto& content = inflated_.emplace_back(entry.num_content);
    inflate(entry, content.data());
    return content;
  }
  const auto content = directory_.stored(entry);
  if (libdeflate_crc32(0, content.data(), content.size()) != entry.crc) refuse_checksum(entry);
  return content;
}

void ZipReader::copy(const ZipEntry& entry, uint8_t* destination) const {
  // Works in blocks, so that a block is still in the processor's cache when it is copied after its checksum.
  constexpr size_t kBlockSize = size_t{128} << 10;
  check_method(entry);
  if (entry.method == ZipEntry::kDeflated) return inflate(entry, destination);
  uint32_t crc = 0;
  for (auto rest = directory_.stored(entry); !rest.empty();) {
    const auto block = rest.first(std::min(rest.size(), kBlockSize));
    crc = libdeflate_crc32(crc, block.data(), block.size());
    std::memcpy(destination, block.data(), block.size());
    destination += block.size();
    rest = rest.subspan(block.size());
  }
  if (crc != entry.crc) refuse_checksum(entry);
}

void ZipReader::inflate(const ZipEntry& entry, uint8_t* destination) const {
  const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> decompressor(libdeflate_alloc_decompressor(),
                                                                                                       &libdeflate_free_decompressor);
  TORCH_CHECK(decompressor, "out of memory for a decompressor");
  const auto result = libdeflate_deflate_decompress(decompressor.get(), directory_.stored(entry).data(), entry.size, destination,
                                                    entry.num_content, nullptr);
  if (result != LIBDEFLATE_SUCCESS) refuse_entry(entry, fmt::format("cannot be decompressed to {} bytes", entry.num_content));
  if (libdeflate_crc32(0, destination, entry.num_content) != entry.crc) refuse_checksum(entry);
}

void ZipReader::check_method(const ZipEntry& entry) const {
  constexpr const char* kFix = "unpack the archive and give the file that torch.save wrote";
  if (entry.is_encrypted()) refuse(source_, "entry " + in_quotes(entry.name) + " is encrypted", kFix);
  if (entry.method != ZipEntry::kStored && entry.method != ZipEntry::kDeflated) {
    refuse(source_, fmt::format("entry {} is compressed with method {} of zip, not 8 (deflate)", in_quotes(entry.name), entry.method),
           kFix);
  }
  if (entry.method == ZipEntry::kStored && entry.size != entry.num_content)
    refuse_entry(entry, "is not compressed, but has two different sizes");
}

void ZipReader::refuse_checksum(const ZipEntry& entry) const {
  if (entry.crc == 0) {
    refuse(source_,
           fmt::format("entry {} has no checksum, because torch.serialization.skip_data() saves tensors without their values",
                       in_quotes(entry.name)),
           "save it again without skip_data()");
  }
  refuse_entry(entry, fmt::format("has changed: the checksum of bytes {} to {} does not match", entry.offset, entry.offset + entry.size));
}

void ZipReader::refuse_entry(const ZipEntry& entry, std::string_view what) const {
  refuse_damaged(source_, fmt::format("entry {} {}", in_quotes(entry.name), what));
}

}  // namespace trainer::checkpoint
