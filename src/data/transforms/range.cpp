#include "data/transforms/range.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trainer::data {
namespace {

bool is_range(const std::vector<double>& values) { return values.size() == 2 && values.front() <= values.back(); }

}  // namespace

void require_range(KeyTable& keys, const std::string& key, const std::vector<double>& values) {
  keys.refuse(key, [&values]() -> std::string {
    if (is_range(values)) return "";
    return fmt::format("[{}] is not a range; give [least, greatest]", fmt::join(values, ", "));
  });
}

void require_number_or_range(KeyTable& keys, const std::string& key, const std::vector<double>& values) {
  keys.refuse(key, [&values]() -> std::string {
    if (is_range(values) || (values.size() == 1 && values.front() >= 0)) return "";
    return fmt::format("[{}] is not a range; give one number that is not negative, or [least, greatest]", fmt::join(values, ", "));
  });
}

}  // namespace trainer::data
