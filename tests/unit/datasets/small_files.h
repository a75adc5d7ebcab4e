#pragma once
// Small files of data sets, written by tests.

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace trainer::datasets::test {

inline void write_bytes(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string gzip(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  std::string compressed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(compressed.data());
  stream.avail_out = static_cast<uInt>(compressed.size());
  deflate(&stream, Z_FINISH);
  compressed.resize(stream.total_out);
  deflateEnd(&stream);
  return compressed;
}

// The header of an IDX file: its magic number and the lengths of its dimensions.
inline std::string idx_header(const std::vector<uint32_t>& words) {
  std::string header;
  for (const auto word : words) {
    for (int shift = 24; shift >= 0; shift -= 8) header += static_cast<char>(word >> shift & 0xff);
  }
  return header;
}

// Images of 28 x 28 whose pixel i is (i * 7 + the image's index) modulo 256.
inline std::string idx_images(uint32_t count) {
  auto file = idx_header({0x803, count, 28, 28});
  for (uint32_t index = 0; index < count; ++index) {
    for (uint32_t i = 0; i < 784; ++i) file += static_cast<char>((i * 7 + index) % 256);
  }
  return file;
}

inline std::string idx_labels(const std::vector<int>& labels) {
  auto file = idx_header({0x801, static_cast<uint32_t>(labels.size())});
  for (const int label : labels) file += static_cast<char>(label);
  return file;
}

}  // namespace trainer::datasets::test
