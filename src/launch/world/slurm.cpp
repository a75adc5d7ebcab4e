#include "launch/world/slurm.h"

#include <fmt/format.h>

#include <charconv>

#include "base/text.h"

namespace trainer::world {
namespace {

// Removes a positive number from the front of `text`; empty if there is none.
std::optional<int> take_count(std::string_view& text) {
  int count = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), count);
  if (result.ec != std::errc{} || count < 1) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(result.ptr - text.data()));
  return count;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// The position of the comma that ends the first term of a node list; commas in brackets do not end it.
size_t end_of_term(std::string_view hosts) {
  bool is_in_brackets = false;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i] == '[' || hosts[i] == ']') is_in_brackets = hosts[i] == '[';
    if (hosts[i] == ',' && !is_in_brackets) return i;
  }
  return std::string_view::npos;
}

// Appends the names that a term such as "rack[0-1]node[05-07,9]" stands for, each after `prefix`, until there are `limit` names. Returns
// false if the term is malformed.
bool append_names(const std::string& prefix, std::string_view term, size_t limit, std::vector<std::string>& names) {
  const auto open = term.find('[');
  if (open == std::string_view::npos) {
    names.push_back(prefix + std::string(term));
    return !names.back().empty();
  }
  const auto close = term.find(']', open);
  if (close == std::string_view::npos) return false;
  const auto begin = prefix + std::string(term.substr(0, open));
  const auto rest = term.substr(close + 1);
  auto ranges = term.substr(open + 1, close - open - 1);
  while (true) {
    const auto comma = ranges.find(',');
    const auto range = ranges.substr(0, comma);
    const auto dash = range.find('-');
    const auto digits = range.substr(0, dash);
    const auto first = parse_number<uint64_t>(digits);
    const auto last = dash == std::string_view::npos ? first : parse_number<uint64_t>(range.substr(dash + 1));
    if (!first || !last) return false;
    for (auto number = *first; number <= *last && names.size() < limit; ++number) {
      if (!append_names(fmt::format("{}{:0{}}", begin, number, digits.size()), rest, limit, names)) return false;
    }
    if (comma == std::string_view::npos) return true;
    ranges.remove_prefix(comma + 1);
  }
}

}  // namespace

std::optional<int> tasks_on_node(std::string_view counts, int64_t node) {
  if (node < 0) return std::nullopt;
  while (true) {
    const auto tasks = take_count(counts);
    if (!tasks) return std::nullopt;
    int64_t num_nodes = 1;
    if (take(counts, "(x")) {
      const auto repeats = take_count(counts);
      if (!repeats || !take(counts, ")")) return std::nullopt;
      num_nodes = *repeats;
    }
    if (node < num_nodes) return tasks;
    node -= num_nodes;
    if (!take(counts, ",")) return std::nullopt;
  }
}

std::vector<std::string> host_names(std::string_view hosts, size_t limit) {
  std::vector<std::string> names;
  while (names.size() < limit) {
    const auto comma = end_of_term(hosts);
    if (!append_names("", hosts.substr(0, comma), limit, names)) return {};
    if (comma == std::string_view::npos) break;
    hosts.remove_prefix(comma + 1);
  }
  return names;
}

std::vector<std::string> hosts_of_tasks(std::string_view hosts, std::string_view counts, std::string_view distribution, size_t num_tasks) {
  // "block", "block:cyclic", "block,Pack": only the first part determines the nodes of the tasks.
  if (!distribution.empty() && !distribution.starts_with("block")) return {};
  std::vector<std::string> by_rank;
  const auto names = host_names(hosts, num_tasks);
  for (size_t node = 0; node < names.size(); ++node) {
    const auto tasks = tasks_on_node(counts, static_cast<int64_t>(node));
    if (!tasks || by_rank.size() + static_cast<size_t>(*tasks) > num_tasks) return {};
    by_rank.insert(by_rank.end(), static_cast<size_t>(*tasks), names[node]);
  }
  return by_rank.size() == num_tasks ? by_rank : std::vector<std::string>();
}

std::string too_few_gpus(int num_tasks, int num_gpus) {
  if (num_gpus == 0 || num_tasks <= num_gpus) return {};
  return fmt::format(
      "Slurm started {} on this node but allocated {} (SLURM_GPUS_ON_NODE), and each task needs its own GPU; set "
      "--ntasks-per-node={} or --gpus-per-node={}, or runtime.device: cpu",
      counted(num_tasks, "task"), counted(num_gpus, "GPU"), num_gpus, num_tasks);
}

std::string idle_gpus(int num_tasks, int num_gpus) {
  if (num_tasks >= num_gpus) return {};
  return fmt::format(
      "Slurm allocated {} GPUs on this node (SLURM_GPUS_ON_NODE), but {} of them {} idle, because each task uses one GPU; set "
      "--ntasks-per-node={}",
      num_gpus, num_gpus - num_tasks, num_gpus - num_tasks == 1 ? "stays" : "stay", num_gpus);
}

int step_port(uint64_t job, uint64_t step) { return 20000 + static_cast<int>((61 * job + step) % 12768); }

}  // namespace trainer::world
