#include "config/aliases.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "trainer/error.h"

namespace trainer::config {
namespace {

// A few aliases of aliases of lists could ask for more memory than there is.
constexpr size_t kMaxAliasBytes = 16 << 20;

size_t depth_of(const Node& node) {
  size_t below = 0;
  for (const auto& item : node.items) below = std::max(below, depth_of(item));
  for (const auto& member : node.members) below = std::max(below, depth_of(member.value));
  const bool has_items = node.kind == Node::Kind::kList || node.kind == Node::Kind::kMap;
  return below + (has_items ? 1 : 0);
}

size_t bytes_of(const Node& node) {
  size_t bytes = sizeof(Node) + node.text.size();
  for (const auto& item : node.items) bytes += bytes_of(item);
  for (const auto& member : node.members) bytes += sizeof(Node::Member) + member.name.size() + bytes_of(member.value);
  return bytes;
}

}  // namespace

void refuse_more_keys(size_t num_keys, const Position& position) {
  if (num_keys < kMostKeys) return;
  throw UsageError(
      fmt::format("{}: more than {} keys in one section, which no experiment file has; check the path", to_string(position), kMostKeys));
}

void Anchors::count(const Node& value, const Position& use) {
  num_bytes_ += bytes_of(value);
  if (num_bytes_ <= kMaxAliasBytes) return;
  throw UsageError(fmt::format("{}: the aliases (*name) of this file repeat more than {} of values; use fewer", to_string(use),
                               format_bytes(kMaxAliasBytes)));
}

void Anchors::define(size_t id, const Node& value) {
  count(value, value.position);
  values_[id] = value;
}

std::optional<Node> Anchors::copy(size_t id, const Position& use, size_t max_depth) {
  const auto found = values_.find(id);
  if (found == values_.end()) return std::nullopt;
  count(found->second, use);
  if (depth_of(found->second) > max_depth) throw UsageError(to_string(use) + ": with this alias, values are nested too deep");
  return found->second;
}

void apply_merge_key(Node& map) {
  const auto* merge = map.find("<<");
  if (merge == nullptr) return;
  const Node& value = merge->value;
  const auto maps = value.kind == Node::Kind::kMap ? std::vector<Node>{value} : value.items;
  const bool are_maps = std::ranges::all_of(maps, [](const Node& node) { return node.kind == Node::Kind::kMap; });
  if (!are_maps || maps.empty()) {
    throw UsageError(
        fmt::format("{}: << takes the keys of other sections, as in `<<: *name` or `<<: [*first, *second]`, where each is a section of "
                    "keys and values",
                    to_string(merge->position)));
  }
  std::vector<Node::Member> members;
  for (const auto& member : map.members) {
    if (member.name != "<<") {
      members.push_back(member);
      continue;
    }
    for (const auto& source : maps) {
      for (const auto& merged : source.members) {
        const bool is_given =
            map.find(merged.name) != nullptr || std::ranges::find(members, merged.name, &Node::Member::name) != members.end();
        if (is_given) continue;
        refuse_more_keys(members.size(), merge->position);
        members.push_back(merged);
      }
    }
  }
  map.members = std::move(members);
}

}  // namespace trainer::config
