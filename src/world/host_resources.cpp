#include "world/host_resources.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/plural.h"
#include "base/text.h"
#include "world/cgroup.h"

namespace trainer::world {
namespace {

bool knows_control_sequences() {
  const char* name = std::getenv("TERM");
  return name != nullptr && *name != '\0' && std::string_view(name) != "dumb";
}

std::optional<int> positive_number(const char* text) {
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const std::string_view view(text);
  const auto result = std::from_chars(view.data(), view.data() + view.size(), value);
  if (result.ec != std::errc{} || value < 1) return std::nullopt;
  return value;
}

}  // namespace

int available_cpus(int num_sharing) {
  cpu_set_t mask;
  int cpus = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : static_cast<int>(std::thread::hardware_concurrency());
  if (const auto quota = cgroup_cpus()) cpus = std::min(cpus, *quota);
  cpus /= num_sharing;
  if (const auto own = positive_number(std::getenv("SLURM_CPUS_PER_TASK"))) cpus = std::min(cpus, *own);
  return std::max(cpus, 1);
}

ComputeThreads default_compute_threads(int num_sharing, const Environment& environment) {
  constexpr int kMostThreads = 1024;
  const auto own = environment("OMP_NUM_THREADS");
  // "4,2" gives a number for each level of nested regions.
  const auto number = own ? positive_number(own->substr(0, own->find(',')).c_str()) : std::nullopt;
  const bool is_of_torchrun = number == 1 && environment("TORCHELASTIC_RUN_ID") && environment("LOCAL_WORLD_SIZE").value_or("1") != "1";
  if (number && !is_of_torchrun) {
    const int count = std::min(*number, kMostThreads);
    return {count, fmt::format("{}: OMP_NUM_THREADS={}", counted(count, "compute thread"), *own)};
  }
  const int count = available_cpus(num_sharing);
  return {count, fmt::format(
                     "{}: this process's share of the cores that the run may use on this host{}", counted(count, "compute thread"),
                     is_of_torchrun ? "; OMP_NUM_THREADS=1 is ignored, as torchrun sets it by itself: set runtime.threads=1 for one" : "")};
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
  // The size that NCCL's manual recommends for containers, whose default is 64 MiB.
  constexpr uint64_t kEnough = uint64_t{1} << 30;
  std::error_code error;
  const auto space = std::filesystem::space(folder, error);
  if (error || space.capacity >= kEnough) return "";
  return fmt::format(
      "{} has {} MiB, and NCCL may need 1 GiB there between the GPUs of one host: start the container with --ipc=host or --shm-size=1g",
      folder.string(), space.capacity >> 20);
}

bool wants_colour() {
  const char* no_colour = std::getenv("NO_COLOR");
  return (no_colour == nullptr || *no_colour == '\0') && knows_control_sequences();
}

bool can_redraw_lines() { return isatty(STDERR_FILENO) != 0 && knows_control_sequences(); }

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

}  // namespace trainer::world
