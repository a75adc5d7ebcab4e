#include "config/key_path.h"

#include <algorithm>
#include <charconv>

namespace trainer::config {
namespace {

// More than a file may nest; each step holds the path to it.
constexpr size_t kMostSteps = 64;

}  // namespace

std::optional<KeyPath> parse_key_path(const std::string& text) {
  KeyPath steps;
  size_t begin = 0;
  while (true) {
    size_t end = std::min(text.find_first_of(".[", begin), text.size());
    if (end == begin || steps.size() >= kMostSteps) return std::nullopt;
    steps.push_back({text.substr(begin, end - begin), std::nullopt, text.substr(0, end)});
    while (end < text.size() && text[end] == '[' && steps.size() < kMostSteps) {
      size_t index = 0;
      const char* last = text.data() + text.size();
      const auto result = std::from_chars(text.data() + end + 1, last, index);
      if (result.ec != std::errc{} || result.ptr == last || *result.ptr != ']') return std::nullopt;
      end = static_cast<size_t>(result.ptr - text.data()) + 1;
      steps.push_back({"", index, text.substr(0, end)});
    }
    if (end == text.size()) return steps;
    if (text[end] != '.') return std::nullopt;
    begin = end + 1;
  }
}

}  // namespace trainer::config
