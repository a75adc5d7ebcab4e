#include "config/problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "base/url.h"
#include "config/overrides.h"
#include "trainer/error.h"

namespace trainer::config {
namespace {

// More problems at once are of no use to anybody, and the time of Problems::is_readable() is proportional to their number.
constexpr size_t kMostProblems = 100;

}  // namespace

Problems::Problem Problems::make(const Position& position, const std::string& key_path, const std::string& what, bool is_contradiction) {
  return {position, key_path, to_string(position) + ": " + (key_path.empty() ? "" : key_path + ": ") + without_secrets(what),
          is_contradiction};
}

void Problems::add(const Position& position, const std::string& key_path, const std::string& what) {
  problems_.push_back(make(position, key_path, what, /*is_contradiction=*/false));
  if (problems_.size() < kMostProblems) return;
  throw UsageError(fmt::format("{}\nThese are the first {} problems; correct them to see the others.", join(sorted_lines(problems_), "\n"),
                               kMostProblems));
}

void Problems::add_unknown_key(const Position& position, const std::string& key_path, const std::string& what) {
  const auto problem = make(position, key_path, what + " (ignored, because predictions do not need it)", /*is_contradiction=*/false);
  const bool is_needed = std::ranges::any_of(needed_, [&](const std::string& section) { return problem.is_in(section); });
  if (unknown_keys_ == UnknownKeys::kRefuse || is_needed || position.is_on_command_line()) return add(position, key_path, what);
  ignored_keys_.push_back(problem);
}

void Problems::add_contradiction(const Position& position, const std::string& key_path, const std::string& what) {
  problems_.push_back(make(position, key_path, what, /*is_contradiction=*/true));
}

void Problems::add_warning(const Position& position, const std::string& key_path, const std::string& what) {
  warnings_.push_back(make(position, key_path, what, /*is_contradiction=*/false));
}

bool Problems::Problem::is_in(const std::string& section) const {
  return section.empty() || key_path.empty() || key_path == section || key_path.starts_with(section + ".") ||
         key_path.starts_with(section + "[");
}

bool Problems::is_readable(const std::string& section) const {
  return std::ranges::none_of(problems_, [&](const Problem& problem) { return !problem.is_contradiction && problem.is_in(section); });
}

bool Problems::is_consistent(const std::string& section) const {
  return std::ranges::none_of(problems_, [&](const Problem& problem) { return problem.is_in(section); });
}

std::vector<std::string> Problems::sorted_lines(std::vector<Problem> problems) {
  // Line 0 is the command line, which is sorted after the files.
  const auto order = [](const Problem& problem) {
    const auto& [source, line, column] = problem.position;
    return std::tuple(line == 0, source, line, column);
  };
  std::ranges::stable_sort(problems, {}, order);
  std::vector<std::string> lines;
  for (const auto& problem : problems) lines.push_back(problem.text);
  return lines;
}

void Problems::throw_if_any() const {
  if (!problems_.empty()) throw UsageError(join(sorted_lines(problems_), "\n"));
}

std::vector<std::string> Problems::warnings() const { return sorted_lines(warnings_); }

namespace {

// The value at `path` and true; if it is not given, the innermost given section or list around it and false.
std::pair<const Node*, bool> innermost(const Node& root, const std::string& path) {
  const Node* node = &root;
  for (const auto& step : parse_key_path(path).value_or(KeyPath{})) {
    if (step.index) {
      if (*step.index >= node->items.size()) return {node, false};
      node = &node->items[*step.index];
    } else {
      const auto* member = node->find(step.name);
      if (member == nullptr) return {node, false};
      node = &member->value;
    }
  }
  return {node, true};
}

}  // namespace

const Node* find_value(const Node& root, const std::string& path) {
  const auto [node, is_whole] = innermost(root, path);
  return is_whole ? node : nullptr;
}

Position position_of(const Node& root, const std::string& path) { return innermost(root, path).first->position; }

bool Findings::is_given(const std::string& path) const { return find_value(root_, path) != nullptr; }

bool Findings::are_readable(std::initializer_list<const char*> sections) const {
  return std::ranges::all_of(sections, [this](const char* section) { return problems_.is_readable(section); });
}

bool Findings::are_consistent(std::initializer_list<const char*> sections) const {
  return std::ranges::all_of(sections, [this](const char* section) { return problems_.is_consistent(section); });
}

void Findings::refuse(const std::string& path, const std::string& what) {
  problems_.add_contradiction(position_of(root_, path), path, what);
}

void Findings::warn(const std::string& path, const std::string& what) { problems_.add_warning(position_of(root_, path), path, what); }

}  // namespace trainer::config
