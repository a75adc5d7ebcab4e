#include "history/json.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace trainer::history {
namespace {

constexpr int kMostLevels = 100;

// How deeply arrays and objects lie in each other.
int count_levels(std::string_view text) {
  int most = 0;
  int level = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') ++i;
    if (in_string) continue;
    if (c == '[' || c == '{') most = std::max(most, ++level);
    if (c == ']' || c == '}') --level;
  }
  return most;
}

}  // namespace

Json parse_json(std::string_view text, const std::filesystem::path& file) {
  if (count_levels(text) > kMostLevels) {
    throw DataError(
        fmt::format("{}: its JSON has more than {} levels, so that no run of trainer has written it; restore the file or remove it",
                    file.string(), kMostLevels));
  }
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace trainer::history
