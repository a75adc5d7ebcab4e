#include "launch/world/other_processes.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

#include "base/text.h"
#include "launch/world/host_resources.h"

namespace trainer::world {
namespace {

std::optional<int64_t> process_number(const std::string& name) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc{} && end == name.data() + name.size() ? std::optional(number) : std::nullopt;
}

// cmdline holds the arguments with a zero byte after each.
bool is_launcher(const std::string& command_line) {
  const auto first = command_line.find('\0');
  return first != std::string::npos && command_line.compare(first + 1, 7, std::string("launch\0", 7)) == 0;
}

bool may_share_a_core(int64_t process) {
  cpu_set_t own, other, both;
  if (sched_getaffinity(0, sizeof own, &own) != 0 || sched_getaffinity(static_cast<pid_t>(process), sizeof other, &other) != 0)
    return false;
  CPU_AND(&both, &own, &other);
  return CPU_COUNT(&both) > 0;
}

}  // namespace

std::vector<int64_t> processes_of_other_runs(std::span<const int64_t> own, const std::filesystem::path& proc) {
  std::vector<int64_t> others;
  const auto name = read_system_file(proc / "self" / "comm");
  std::error_code error;
  for (std::filesystem::directory_iterator entry(proc, error), end; !error && entry != end; entry.increment(error)) {
    const auto process = process_number(entry->path().filename().string());
    if (!process || *process == getpid() || std::ranges::find(own, *process) != own.end()) continue;
    if (read_system_file(entry->path() / "comm") != name || is_launcher(read_system_file(entry->path() / "cmdline"))) continue;
    if (may_share_a_core(*process)) others.push_back(*process);
  }
  std::ranges::sort(others);
  return others;
}

std::string describe_other_runs(const std::vector<int64_t>& others, int num_threads) {
  if (others.empty()) return "";
  constexpr size_t kShown = 8;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(others.size(), kShown); ++i) shown.push_back(std::to_string(others[i]));
  if (others.size() > kShown) shown.emplace_back("...");
  return fmt::format(
      "other runs use the cores of this host too (process {}), and each rank here uses {} as if they did not; runtime.threads sets another "
      "number",
      join(shown, ", "), counted(num_threads, "thread"));
}

}  // namespace trainer::world
