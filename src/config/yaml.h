#pragma once
// YAML text for trees of values; parsed by yaml-cpp.

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/keys/key.h"

namespace trainer::config {

// Parses one document of at most 1 MiB without tags, nested at most 32 levels deep, with at most 1,000 keys in a section; aliases are
// resolved. Throws UsageError with the position.
Node parse_yaml(std::string_view text, const std::string& source);

// Writes a tree as YAML that parse_yaml and every other YAML reader, of version 1.1 (PyYAML) or 1.2, read back to the same values: text is
// quoted if any such reader would read it as a number, a date, a truth value or null. Each key has its own line, and so has each item of a
// list of maps; the items themselves and all other lists are in flow style.
std::string to_yaml(const Node& node);

// One line, in flow style: for messages and reference tables.
std::string to_inline_yaml(const Node& node);

// A line of a tree as to_yaml writes it.
struct YamlLine {
  std::string text;
  std::string path;  // of the value in it: "optimizer.lr", "dataset.train_transforms[1]"; empty if the line has only a key
};
std::vector<YamlLine> yaml_lines(const Node& map);

// Repetition in YAML: aliases (*name) of values that have an anchor (&name), and merge keys (<<).

// The most keys in a section, far more than any experiment file has; the time to find a key is proportional to their number.
inline constexpr size_t kMostKeys = 1000;
// Throws UsageError at `position` if a map with this many keys gets another one.
void refuse_more_keys(size_t num_keys, const Position& position);

// The values with an anchor in one text. Copies keep the positions of the anchor's value, because mistakes are corrected there.
class Anchors {
 public:
  // `id`: yaml-cpp's number of the anchor. Throws UsageError if the copies of this text become too large.
  void define(size_t id, const Node& value);
  // A copy of the value of anchor `id`; nullopt if that value is not complete yet. Throws UsageError at `use` if the copies of this text
  // become too large, or if the copy has more than `max_depth` levels.
  std::optional<Node> copy(size_t id, const Position& use, size_t max_depth);

 private:
  void count(const Node& value, const Position& use);

  std::map<size_t, Node> values_;
  size_t num_bytes_ = 0;  // of all copies
};

// Replaces the member `<<` of a map, if there is one, by the members of the map or of the list of maps that it holds. The map's own members
// take precedence, then those of earlier maps in the list. Throws UsageError at `<<` if it holds anything else.
void apply_merge_key(Node& map);

}  // namespace trainer::config
