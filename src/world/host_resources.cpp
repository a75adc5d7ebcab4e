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
