#include "checkpoint/budget.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/text.h"
#include "checkpoint/refusal.h"

namespace trainer::checkpoint {

size_t max_allocation(size_t file_size) {
  constexpr size_t kMaxForValues = size_t{16} << 20;
  return 4 * file_size + std::min(64 * file_size, kMaxForValues);
}

Budget::Budget(size_t file_size, std::string source) : source_(std::move(source)), limit_(max_allocation(file_size)), left_(limit_) {}

void Budget::take(size_t bytes) {
  if (bytes > left_) {
    refuse(source_, "asks for more memory than " + format_bytes(limit_) + ", which is more than a file of its size needs",
           "do not trust it, or save it again without large lists of numbers");
  }
  left_ -= bytes;
}

void Budget::take(size_t count, size_t size) {
  size_t bytes = 0;
  take(__builtin_mul_overflow(count, size, &bytes) ? std::numeric_limits<size_t>::max() : bytes);
}

}  // namespace trainer::checkpoint
