#pragma once
// A zip file in memory: its entries, which may be stored or deflated, also in the zip64 form.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace trainer::datasets {

struct ZipEntry {
  std::string path;
  bool is_folder = false;
  bool is_special = false;  // neither a file nor a folder, such as a link
  bool is_encrypted = false;
  uint16_t method = 0;
  uint32_t checksum = 0;
  uint64_t compressed_bytes = 0;
  uint64_t num_bytes = 0;
  uint64_t offset = 0;  // of its local header
};

bool is_zip(std::span<const uint8_t> bytes);

// Both throw std::runtime_error with only the reason.
std::vector<ZipEntry> list_zip(std::span<const uint8_t> bytes);
// Passes the content to `take` part by part. Its size and checksum are compared at the end.
void read_zip_entry(std::span<const uint8_t> bytes, const ZipEntry& entry, const std::function<void(std::span<const uint8_t>)>& take);

}  // namespace trainer::datasets
