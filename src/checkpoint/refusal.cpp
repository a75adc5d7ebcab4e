#include "checkpoint/refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/text.h"
#include "trainer/error.h"

namespace trainer::checkpoint {

void refuse(std::string_view source, std::string_view what, std::string_view fix) {
  throw CheckpointError(fmt::format("{}: {}; {}", source, what, fix));
}

void refuse_damaged(std::string_view source, std::string_view what) { refuse(source, what, kDamagedFix); }

MappedFile map_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) refuse(path.string(), "there is no such file", "check the path");
  try {
    return MappedFile(path);
  } catch (const Error& error) {
    throw CheckpointError(error.what());
  }
}

size_t max_allocation(size_t file_size) {
  constexpr size_t kMaxForValues = size_t{16} << 20;
  return 4 * file_size + std::min(64 * file_size, kMaxForValues);
}

Budget::Budget(size_t file_size, std::string source) : source_(std::move(source)), limit_(max_allocation(file_size)), left_(limit_) {}

void Budget::take(size_t bytes) {
  if (bytes > left_) {
    refuse(source_, "would need more than " + format_bytes(limit_) + " of memory, which is too much for a file of its size",
           "if you trust its source, save it again with tensors instead of long lists of numbers");
  }
  left_ -= bytes;
}

void Budget::take(size_t count, size_t size) {
  size_t bytes = 0;
  take(__builtin_mul_overflow(count, size, &bytes) ? std::numeric_limits<size_t>::max() : bytes);
}

}  // namespace trainer::checkpoint
