#include "history/json.h"

#include <fmt/format.h>

#include "base/json_levels.h"
#include "trainer/error.h"

namespace trainer::history {

Json parse_json(std::string_view text, const std::filesystem::path& file) {
  if (count_json_levels(text) > kMostJsonLevels) {
    throw DataError(
        fmt::format("{}: its JSON has more than {} levels, so that no run of trainer has written it; restore the file or remove it",
                    file.string(), kMostJsonLevels));
  }
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace trainer::history
