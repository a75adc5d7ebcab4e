#include "config/base_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/path.h"
#include "config/yaml.h"
#include "trainer/error.h"

namespace trainer::config {
namespace {

namespace fs = std::filesystem;

// A larger file is not an experiment file but a device or a data file.
constexpr size_t kMaxFileBytes = 1 << 20;
// Each base file can name several others, and files can be based on each other.
constexpr int kMostFiles = 100;

bool names_another(const Node& base, const Node& derived) {
  const auto* theirs = base.find("name");
  const auto* ours = derived.find("name");
  return theirs != nullptr && ours != nullptr && to_inline_yaml(theirs->value) != to_inline_yaml(ours->value);
}

void merge(Node& base, Node derived) {
  const bool are_sections = base.kind == Node::Kind::kMap && derived.kind == Node::Kind::kMap;
  if (!are_sections || names_another(base, derived)) {
    base = std::move(derived);
    return;
  }
  base.position = derived.position;
  for (auto& member : derived.members) {
    if (auto* present = base.find(member.name)) {
      present->position = member.position;
      merge(present->value, std::move(member.value));
    } else {
      base.members.push_back(std::move(member));
    }
  }
}

class FileReader {
 public:
  Node read(const fs::path& file) {
    if (file == kStandardInput) return with_bases(parse_yaml(read_standard_input(kMaxFileBytes), kStandardInputName), "");
    if (++num_files_ > kMostFiles) {
      throw Error(
          fmt::format("more than {} base files, or {} is based on itself; remove some of the `base` keys", kMostFiles, file.string()));
    }
    return with_bases(parse_yaml(read_file_or_pipe(file, kMaxFileBytes), file.string()), file.parent_path());
  }

 private:
  // `folder`: the folder of the file that contains `node`; relative paths of its base files begin there.
  Node with_bases(Node node, const fs::path& folder) {
    const auto key = std::ranges::find(node.members, "base", &Node::Member::name);
    if (key == node.members.end()) return node;
    const auto value = std::move(key->value);
    node.members.erase(key);
    const bool is_list = value.kind == Node::Kind::kList && !value.items.empty();
    Node merged = Node::map();
    for (const auto& path : is_list ? value.items : std::vector<Node>{value}) merge(merged, read_base(path, folder));
    merge(merged, std::move(node));
    return merged;
  }

  Node read_base(const Node& path, const fs::path& folder) {
    const auto refuse = [&](const std::string& what) { throw UsageError(fmt::format("{}: base: {}", to_string(path.position), what)); };
    if (path.kind != Node::Kind::kScalar || path.text.empty()) {
      refuse(fmt::format("expected the path of an experiment file, or a list of paths, got {}", to_inline_yaml(path)));
    }
    Node base;
    try {
      const auto file = (folder / expand_path(path.text)).lexically_normal();
      if (const auto irregular = describe_irregular(file); !irregular.empty())
        throw Error(fmt::format("cannot read {}: {}", file.string(), irregular));
      base = read(file);
      if (base.kind == Node::Kind::kNull) throw Error(file.string() + " is empty; remove it from `base`, or write keys into it");
      if (base.kind != Node::Kind::kMap)
        throw Error(file.string() + " is not an experiment file, because it has no sections of keys and values; correct the path");
    } catch (const UsageError&) {
      throw;
    } catch (const Error& error) {
      if (error.exit_code() == ExitCode::kStopped) throw;
      refuse(error.what());
    }
    return base;
  }

  int num_files_ = 0;
};

}  // namespace

Node read_with_bases(const fs::path& file) {
  try {
    return FileReader().read(file);
  } catch (const Error& error) {
    if (error.exit_code() == ExitCode::kStopped || dynamic_cast<const UsageError*>(&error) != nullptr) throw;
    throw UsageError(error.what());
  }
}

}  // namespace trainer::config
