#include "config/compare.h"

#include <fmt/format.h>

#include "base/text.h"

namespace trainer::config {
namespace {

void compare(const Node* then, const Node* now, const std::string& key, std::vector<Difference>& found) {
  const bool both_maps = then != nullptr && now != nullptr && then->kind == Node::Kind::kMap && now->kind == Node::Kind::kMap;
  if (!both_maps) {
    const auto text = [](const Node* node) { return node == nullptr ? std::string("unset") : to_inline_yaml(*node); };
    if (text(then) != text(now)) found.push_back({key, text(then), text(now)});
    return;
  }
  const auto key_of = [&](const std::string& name) { return key.empty() ? name : key + "." + name; };
  const auto value = [](const Node::Member* member) { return member == nullptr ? nullptr : &member->value; };
  for (const auto& member : then->members) compare(&member.value, value(now->find(member.name)), key_of(member.name), found);
  for (const auto& member : now->members) {
    if (then->find(member.name) == nullptr) compare(nullptr, &member.value, key_of(member.name), found);
  }
}

}  // namespace

std::vector<Difference> differences(const Node& then, const Node& now) {
  std::vector<Difference> found;
  compare(&then, &now, "", found);
  return found;
}

std::string to_string(const Difference& difference) {
  return fmt::format("{}: {}, not {}", difference.key, difference.now, difference.then);
}

std::string to_string(const std::vector<Difference>& differences) {
  std::vector<std::string> texts;
  for (const auto& difference : differences) texts.push_back(to_string(difference));
  return join(texts, "; ");
}

}  // namespace trainer::config
