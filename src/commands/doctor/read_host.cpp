#include "commands/doctor/read_host.h"

#include <ATen/Version.h>
#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <thread>

#include "data/image_file.h"
#include "device/cuda_module.h"
#include "device/placement.h"
#include "launch/world/host_resources.h"
#include "launch/world/rank_env.h"

namespace trainer::doctor {
namespace {

namespace fs = std::filesystem;

std::optional<uint64_t> limit_of(__rlimit_resource_t resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

bool exists(const char* path) {
  std::error_code not_readable;
  return fs::exists(path, not_readable);
}

// In bytes; 0 if the field is missing.
uint64_t memory_field(const std::string& name) {
  std::istringstream lines(world::read_system_file("/proc/meminfo"));
  std::string field;
  for (uint64_t kib = 0; lines >> field >> kib; lines.ignore(64, '\n')) {
    if (field == name) return kib << 10;
  }
  return 0;
}

}  // namespace

Cpus read_cpus() {
  return {.instructions = at::get_cpu_capability(),
          .has_amx = device::cpu_has_amx(),
          .installed = get_nprocs(),
          .allowed = static_cast<int>(std::thread::hardware_concurrency()),
          .quota = world::cgroup_cpus(),
          .available = world::available_cpus()};
}

Memory read_memory() {
  return {.total = memory_field("MemTotal:"), .available = memory_field("MemAvailable:"), .limit = world::cgroup_memory()};
}

std::optional<uint64_t> read_shared_memory_size() {
  std::error_code missing;
  const auto space = fs::space("/dev/shm", missing);
  return missing ? std::nullopt : std::optional<uint64_t>(space.capacity);
}

std::optional<uint64_t> read_open_files_limit() { return limit_of(RLIMIT_NOFILE); }

std::optional<uint64_t> read_processes_limit() {
  const auto user = limit_of(RLIMIT_NPROC);
  const auto group = world::cgroup_processes();
  return user && group ? std::min(*user, *group) : (user ? user : group);
}

std::optional<uint64_t> read_locked_memory_limit() { return limit_of(RLIMIT_MEMLOCK); }

bool has_infiniband() {
  std::error_code none;
  const fs::directory_iterator adapters("/sys/class/infiniband", none);
  return !none && adapters != fs::directory_iterator();
}

Launch read_launch() {
  const auto environment = world::process_environment();
  Launch launch;
  try {
    const auto rank_env = world::find_rank_env({}, environment);
    launch.decision = rank_env.decision;
    launch.slurm_gpus = rank_env.slurm_gpus;
  } catch (const UsageError& error) {
    launch.problem = error.what();
  }
  launch.slurm_job = environment("SLURM_JOB_ID").value_or("");
  launch.is_container = exists("/.dockerenv") || exists("/run/.containerenv") || exists("/.singularity.d") || environment("container");
  return launch;
}

Gpus read_gpus() {
  const auto cuda = device::open_cuda_module();
  Gpus gpus{.has_driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr, .refusal = cuda.refusal, .report = {}};
  if (cuda.module != nullptr) gpus.report = device::read_gpu_report();
  return gpus;
}

std::string try_images() {
  constexpr int kSize = 8;
  constexpr int kQuality = 90;
  try {
    const std::vector<uint8_t> pixels(size_t{3} * kSize * kSize, 128);
    const auto file = data::encode_jpeg(pixels.data(), kSize, kSize, kQuality);
    std::vector<uint8_t> decoded;
    data::decode_image(file, decoded);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace trainer::doctor
