#include "config/problems.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"

namespace trainer::config {

void Problems::add(const Position& position, const std::string& key_path, const std::string& what) {
  problems_.push_back({position, to_string(position) + ": " + (key_path.empty() ? "" : key_path + ": ") + what});
}

void Problems::throw_if_any() const {
  if (problems_.empty()) return;
  auto sorted = problems_;
  // Line 0 is the command line, which is sorted after the file.
  const auto order = [](const Problem& problem) {
    return std::tuple(problem.position.line == 0, problem.position.line, problem.position.column);
  };
  std::ranges::stable_sort(sorted, {}, order);
  std::string text;
  for (const auto& problem : sorted) text += (text.empty() ? "" : "\n") + problem.text;
  throw UsageError(text);
}

}  // namespace trainer::config
