#include "world/slurm.h"

#include <fmt/format.h>

#include <charconv>

#include "base/plural.h"

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

std::string first_host(std::string_view hosts) {
  std::string name;
  while (!hosts.empty() && hosts.front() != ',') {
    if (!take(hosts, "[")) {
      name += hosts.front();
      hosts.remove_prefix(1);
      continue;
    }
    const auto end_of_list = hosts.find(']');
    const auto end_of_number = hosts.find_first_of(",-]");
    if (end_of_list == std::string_view::npos || end_of_number == 0) return {};
    name += hosts.substr(0, end_of_number);
    hosts.remove_prefix(end_of_list + 1);
  }
  return name;
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
