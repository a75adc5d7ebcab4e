#include "base/json_levels.h"

#include <algorithm>
#include <cstddef>

namespace trainer {

int count_json_levels(std::string_view text) {
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

}  // namespace trainer
