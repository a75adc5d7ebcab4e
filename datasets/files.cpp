#include "datasets/files.h"

#include <fmt/format.h>

#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "datasets/inflate.h"
#include "trainer/error.h"

namespace trainer::datasets {
namespace {

constexpr size_t kMaxDecompressedBytes = size_t{1} << 30;

std::vector<uint8_t> decompress(std::span<const uint8_t> bytes, const std::function<void(std::span<const uint8_t>)>& check) {
  std::vector<uint8_t> content;
  inflate_all(bytes, Deflated::kGzip, [&](std::span<const uint8_t> part) {
    if (content.size() + part.size() > kMaxDecompressedBytes) {
      throw std::runtime_error("it has more than " + format_bytes(kMaxDecompressedBytes) + " when decompressed");
    }
    content.insert(content.end(), part.begin(), part.end());
    check(content);
  });
  return content;
}

}  // namespace

bool is_there(const std::filesystem::path& path) {
  const FileAccess access("looking for", path);
  std::error_code error;
  return std::filesystem::exists(path, error) || error;
}

FileContent load_file(const std::filesystem::path& path, const std::function<void(std::span<const uint8_t>)>& check) {
  const FileAccess access("reading", path);
  try {
    const auto file = std::make_shared<const MappedFile>(path);
    if (path.extension() != ".gz") return {path, file, file->bytes()};
    const auto content = std::make_shared<const std::vector<uint8_t>>(decompress(file->bytes(), check));
    return {path, content, *content};
  } catch (const Error& error) {
    throw DataError(error.what());
  } catch (const std::runtime_error& reason) {
    throw DataError(fmt::format("cannot read {}: {}", path.string(), reason.what()));
  }
}

}  // namespace trainer::datasets
