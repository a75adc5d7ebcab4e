#include "config/problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
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

bool is_in(const std::string& key_path, const std::string& section) {
  return section.empty() || key_path.empty() || key_path == section || key_path.starts_with(section + ".") ||
         key_path.starts_with(section + "[");
}

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

void Problems::add(const Position& position, const std::string& key_path, const std::string& what, Kind kind) {
  const auto place = position.source.empty() ? "" : to_string(position) + ": ";
  problems_.push_back({kind, position, key_path, place + (key_path.empty() ? "" : key_path + ": ") + without_secrets(what)});
  if (kind != Kind::kInvalid) return;
  const auto errors = lines(Kind::kInvalid, Kind::kContradiction);
  if (errors.size() < kMostProblems) return;
  throw UsageError(fmt::format("{}\nThese are the first {} problems; correct them to see the others.", join(errors, "\n"), kMostProblems));
}

void Problems::add_unknown_key(const Position& position, const std::string& key_path, const std::string& what) {
  const bool is_needed = std::ranges::any_of(needed_, [&](const std::string& section) { return is_in(key_path, section); });
  if (unknown_keys_ == UnknownKeys::kRefuse || is_needed || position.is_on_command_line()) return add(position, key_path, what);
  add(position, key_path, what + " (ignored, because predictions do not need it)", Kind::kIgnored);
}

bool Problems::is_readable(const std::string& section, Kind most) const {
  return std::ranges::none_of(problems_, [&](const Problem& problem) { return problem.kind <= most && is_in(problem.key_path, section); });
}

std::vector<std::string> Problems::lines(Kind first, Kind last) const {
  std::vector<Problem> found;
  std::ranges::copy_if(problems_, std::back_inserter(found),
                       [&](const Problem& problem) { return problem.kind >= first && problem.kind <= last; });
  std::ranges::stable_sort(found, {}, [](const Problem& problem) {
    const auto& [source, line, column] = problem.position;
    return std::tuple(problem.position.is_on_command_line(), source, line, column);
  });
  std::vector<std::string> texts;
  for (const auto& problem : found) texts.push_back(problem.text);
  return texts;
}

std::vector<std::string> Problems::lines(Kind kind) const { return lines(kind, kind); }

void Problems::throw_if_any() const {
  const auto errors = lines(Kind::kInvalid, Kind::kContradiction);
  if (!errors.empty()) throw UsageError(join(errors, "\n"));
}

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
  return std::ranges::all_of(sections,
                             [this](const char* section) { return problems_.is_readable(section, Problems::Kind::kContradiction); });
}

void Findings::refuse(const std::string& path, const std::string& what) {
  problems_.add(position_of(root_, path), path, what, Problems::Kind::kContradiction);
}

void Findings::warn(const std::string& path, const std::string& what) {
  problems_.add(position_of(root_, path), path, what, Problems::Kind::kWarning);
}

}  // namespace trainer::config
