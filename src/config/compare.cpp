#include "config/compare.h"

#include <fmt/format.h>

namespace trainer::config {
namespace {

void compare(const Node* ours, const Node* theirs, const std::string& path, std::vector<std::string>& found) {
  const bool both_maps = ours != nullptr && theirs != nullptr && ours->kind == Node::Kind::kMap && theirs->kind == Node::Kind::kMap;
  if (!both_maps) {
    const auto text = [](const Node* node) { return node == nullptr ? std::string("nothing") : to_inline_yaml(*node); };
    if (text(ours) != text(theirs)) found.push_back(fmt::format("{}: {}, not {}", path, text(theirs), text(ours)));
    return;
  }
  const auto path_of = [&](const std::string& name) { return path.empty() ? name : path + "." + name; };
  const auto value = [](const Node::Member* member) { return member == nullptr ? nullptr : &member->value; };
  for (const auto& member : ours->members) compare(&member.value, value(theirs->find(member.name)), path_of(member.name), found);
  for (const auto& member : theirs->members) {
    if (ours->find(member.name) == nullptr) compare(nullptr, &member.value, path_of(member.name), found);
  }
}

}  // namespace

std::vector<std::string> differences(const Node& ours, const Node& theirs) {
  std::vector<std::string> found;
  compare(&ours, &theirs, "", found);
  return found;
}

}  // namespace trainer::config
