#include "launch/world/host_resources.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "trainer/error.h"

namespace trainer::world {
namespace {

bool knows_control_sequences() {
  const char* name = std::getenv("TERM");
  return name != nullptr && *name != '\0' && std::string_view(name) != "dumb";
}

std::optional<int> positive_number(std::string_view text) {
  // Spaces around a number of a list, as OpenMP allows.
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  const auto value = parse_number<int>(text);
  return value && *value >= 1 ? value : std::nullopt;
}

namespace fs = std::filesystem;

// Empty if the file cannot be read.
std::string read_system_file(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return std::move(text).str();
}

// "200000 100000" (quota and period of cgroup v2's cpu.max) as whole cores, at least 1; empty for "max".
std::optional<int> parse_cpu_max(const std::string& text) {
  std::istringstream stream(text);
  double quota = 0;
  double period = 0;
  if (!(stream >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return std::max(1, static_cast<int>(quota / period));
}

void visit_with_parents(const fs::path& mount, fs::path group, const std::function<void(const fs::path& folder)>& visit) {
  while (true) {
    visit(mount / group.relative_path());
    if (group == group.parent_path()) return;
    group = group.parent_path();
  }
}

// Calls `visit` with the folder of this process's cgroup and with those of its ancestors, whose limits apply too. A line of files.groups is
// "0::/path" for cgroups v2, and "4:cpu,cpuacct:/path" for v1, in which `controller` has its own mount. In a container, the path may be
// that of the host, while the container's own cgroup is the mount itself: then only the mount exists, which is visited last.
void for_each_group(const CgroupFiles& files, const std::string& controller, const std::function<void(const fs::path& folder)>& visit) {
  std::istringstream lines(read_system_file(files.groups));
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    const auto group = line.substr(second + 1);
    if (controllers == ",,") visit_with_parents(files.mount, group, visit);
    if (controllers.find(',' + controller + ',') != std::string::npos) visit_with_parents(files.mount / controller, group, visit);
  }
}

// Empty for "max", for the number that means "no limit" in version 1, and for a file that does not exist.
std::optional<uint64_t> parse_limit(const std::string& text) {
  constexpr uint64_t kUnlimited = uint64_t{1} << 60;
  std::istringstream stream(text);
  uint64_t limit = 0;
  if (!(stream >> limit) || limit >= kUnlimited) return std::nullopt;
  return limit;
}

// The least of the limits that `read` finds in the folders; the files have different names in the two versions of cgroups.
template <class Read>
auto least_limit(const CgroupFiles& files, const char* controller, const Read& read) {
  decltype(read(fs::path())) least;
  for_each_group(files, controller, [&](const fs::path& folder) {
    if (const auto limit = read(folder)) least = std::min(least.value_or(*limit), *limit);
  });
  return least;
}

}  // namespace

int available_cpus(int num_sharing) {
  cpu_set_t mask;
  int cpus = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : static_cast<int>(std::thread::hardware_concurrency());
  if (const auto quota = cgroup_cpus()) cpus = std::min(cpus, *quota);
  cpus /= num_sharing;
  if (const auto own = positive_number(process_environment()("SLURM_CPUS_PER_TASK").value_or(""))) cpus = std::min(cpus, *own);
  return std::max(cpus, 1);
}

ComputeThreads default_compute_threads(int num_sharing, const Environment& environment) {
  constexpr int kMostThreads = 1024;
  const auto own = environment("OMP_NUM_THREADS");
  // A list such as "4,2" has a number for each level of nested parallel regions; the first one is for the outermost level.
  const auto number = own ? positive_number(std::string_view(*own).substr(0, own->find(','))) : std::nullopt;
  const bool is_of_torchrun = number == 1 && environment("TORCHELASTIC_RUN_ID") && environment("LOCAL_WORLD_SIZE").value_or("1") != "1";
  if (number && !is_of_torchrun) {
    const int count = std::min(*number, kMostThreads);
    return {count, fmt::format("{}: OMP_NUM_THREADS={}", counted(count, "compute thread"), *own)};
  }
  const int count = available_cpus(num_sharing);
  return {count,
          fmt::format("{}: this process's share of the cores that the run may use on this host{}", counted(count, "compute thread"),
                      is_of_torchrun
                          ? "; OMP_NUM_THREADS=1 is ignored, because torchrun sets it by default: set runtime.threads=1 to use one thread"
                          : "")};
}

std::string cpu_mask() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return "";
  std::vector<std::string> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &mask)) cores.push_back(std::to_string(core));
  }
  return join(cores, ",");
}

std::string describe_small_shared_memory(const std::filesystem::path& folder) {
  // The size that NCCL's manual recommends for containers; their default is 64 MiB.
  constexpr uint64_t kEnough = uint64_t{1} << 30;
  std::error_code error;
  const auto space = std::filesystem::space(folder, error);
  if (error || space.capacity >= kEnough) return "";
  return fmt::format(
      "{} has only {} MiB, but NCCL may need 1 GiB of it for communication between GPUs of this host: start the container with --ipc=host "
      "or --shm-size=1g",
      folder.string(), space.capacity >> 20);
}

bool wants_colour() {
  const char* no_colour = std::getenv("NO_COLOR");
  return (no_colour == nullptr || *no_colour == '\0') && knows_control_sequences();
}

bool can_redraw_lines() { return isatty(STDERR_FILENO) != 0 && knows_control_sequences(); }

std::optional<int> cgroup_cpus(const CgroupFiles& files) {
  return least_limit(files, "cpu", [](const fs::path& folder) {
    const auto max = parse_cpu_max(read_system_file(folder / "cpu.max"));
    return max ? max : parse_cpu_max(read_system_file(folder / "cpu.cfs_quota_us") + " " + read_system_file(folder / "cpu.cfs_period_us"));
  });
}

std::optional<uint64_t> cgroup_memory(const CgroupFiles& files) {
  return least_limit(files, "memory", [](const fs::path& folder) {
    const auto max = parse_limit(read_system_file(folder / "memory.max"));
    return max ? max : parse_limit(read_system_file(folder / "memory.limit_in_bytes"));
  });
}

std::optional<uint64_t> cgroup_processes(const CgroupFiles& files) {
  return least_limit(files, "pids", [](const fs::path& folder) { return parse_limit(read_system_file(folder / "pids.max")); });
}

std::optional<uint64_t> limit_of(__rlimit_resource_t resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::string describe_process_limits() {
  std::vector<std::string> limits;
  if (const auto limit = limit_of(RLIMIT_AS))
    limits.push_back(fmt::format("a process may use {} of address space (ulimit -v)", format_bytes(*limit)));
  if (const auto limit = limit_of(RLIMIT_NPROC)) {
    limits.push_back(fmt::format("user {} may have {} processes and threads together (ulimit -u)", geteuid(), *limit));
  }
  if (const auto group = cgroup_processes())
    limits.push_back(fmt::format("this control group may have {} processes and threads together (pids.max)", *group));
  return limits.empty() ? "the limit is that of the whole system (kernel.threads-max, or its memory)" : join(limits, ", and ");
}

void check_threads(int count) {
  std::atomic<bool> is_over{false};
  std::vector<std::jthread> threads;
  std::string refusal;
  try {
    while (static_cast<int>(threads.size()) < count) threads.emplace_back([&] { is_over.wait(false); });
  } catch (const std::system_error& error) {
    refusal = explain_thread_limit(error);
  }
  is_over = true;
  is_over.notify_all();
  threads.clear();
  if (!refusal.empty()) throw Error(refusal);
}

void check_address_space() {
  // With less, LibTorch cannot be loaded, or its libraries, which start threads without handling errors, end the process or wait.
  constexpr uint64_t kNeeded = uint64_t{1} << 30;
  const auto limit = limit_of(RLIMIT_AS);
  if (!limit || *limit >= kNeeded) return;
  throw Error(
      fmt::format("this process may use {} of address space (ulimit -v), but needs at least {}; raise the limit: ulimit -v unlimited",
                  format_bytes(*limit), format_bytes(kNeeded)));
}

void check_open_files(int num_ranks) {
  // Measured: a rank has about five connections for each rank.
  const int count = 35 + 5 * num_ranks;
  std::vector<Descriptor> copies;
  while (static_cast<int>(copies.size()) < count) {
    if (const int copy = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0); copy >= 0) {
      copies.emplace_back(copy);
      continue;
    }
    if (errno != EMFILE) return;
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const auto needed = limit.rlim_cur + static_cast<uint64_t>(count) - copies.size();
    const rlimit raised = {.rlim_cur = needed, .rlim_max = limit.rlim_max};
    if (needed <= limit.rlim_max && setrlimit(RLIMIT_NOFILE, &raised) == 0) continue;
    throw Error(
        fmt::format("each of {} needs about {} open files and connections, but may have {} (ulimit -n); raise the limit: ulimit -n {}",
                    counted(num_ranks, "rank"), needed, limit.rlim_cur, std::max(needed, uint64_t{4096})));
  }
}

std::string explain_thread_limit(const std::exception& error) {
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system == nullptr || system->code() != std::errc::resource_unavailable_try_again) return "";
  return fmt::format(
      "no more threads can be started: {}; raise the limit, end other processes, or lower runtime.threads and dataloader.num_workers",
      describe_process_limits());
}

}  // namespace trainer::world
