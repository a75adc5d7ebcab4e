#include "commands/doctor/read_host.h"

#include <ATen/Version.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "data/image_file.h"
#include "device/cuda_module.h"
#include "device/placement.h"
#include "distributed/addresses.h"
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

// The value in bytes; 0 if the field is missing.
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
    launch.description = rank_env.description;
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

namespace {

fs::path nearest_folder(const fs::path& folder) {
  std::error_code error;
  auto path = fs::absolute(folder, error);
  while (!fs::exists(path, error) && path != path.parent_path()) path = path.parent_path();
  return path;
}

std::string reason() { return std::generic_category().message(errno); }

}  // namespace

Disk read_disk(const fs::path& folder) {
  constexpr size_t kPart = size_t{1} << 20;
  constexpr size_t kNumParts = 32;
  const auto path = nearest_folder(folder);
  Disk disk;
  disk.folder = path.string();
  const auto file_path = path / fmt::format(".trainer-doctor-{}", getpid());
  const auto file = open_regular_file(file_path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
  if (file.number() < 0) {
    disk.problem = fmt::format("no file can be written in {}: {}", disk.folder, reason());
    return disk;
  }
  std::vector<std::string> missing;
  if (flock(file.number(), LOCK_EX | LOCK_NB) != 0) missing.push_back(fmt::format("locks (flock: {})", reason()));
  unlink(file_path.c_str());
  if (symlink("target", file_path.c_str()) != 0) missing.push_back(fmt::format("symbolic links ({})", reason()));
  unlink(file_path.c_str());
  if (const auto largest = largest_size_of(file); largest && *largest < uint64_t{1} << 32) {
    missing.push_back(fmt::format("files of more than {} (ulimit -f, or FAT)", format_bytes(*largest)));
  }
  disk.missing = join(missing, " and ");
  const std::string part(kPart, 'x');
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < kNumParts; ++i) {
    std::string_view rest = part;
    if (write_all(file.number(), rest)) continue;
    disk.problem = fmt::format("cannot write {} MiB in {}: {}", kNumParts, disk.folder, reason());
    return disk;
  }
  if (fsync(file.number()) != 0) {
    disk.problem = fmt::format("cannot flush a file in {}: {}", disk.folder, reason());
    return disk;
  }
  disk.bytes_per_second = kPart * kNumParts / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::error_code unknown;
  disk.free = fs::space(path, unknown).available;
  return disk;
}

namespace {

// The numeric IPv4 or IPv6 address; empty for other families.
std::string numeric(const sockaddr* address) {
  if (address == nullptr || (address->sa_family != AF_INET && address->sa_family != AF_INET6)) return "";
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST] = {};
  return getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

}  // namespace

std::vector<std::string> read_addresses(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::vector<std::string> addresses;
  for (; found != nullptr; found = found->ai_next) addresses.push_back(numeric(found->ai_addr));
  return addresses;
}

Network read_network() {
  const auto environment = world::process_environment();
  Network network;
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) == 0) {
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(found, &freeifaddrs);
    for (; found != nullptr; found = found->ifa_next) {
      const auto address = numeric(found->ifa_addr);
      if ((found->ifa_flags & IFF_UP) == 0 || address.empty()) continue;
      network.interfaces.push_back({found->ifa_name, address, (found->ifa_flags & IFF_LOOPBACK) != 0});
    }
  }
  network.chosen_interface = environment("GLOO_SOCKET_IFNAME").value_or("");
  network.master_addr = environment("MASTER_ADDR").value_or("");
  // An address that is reserved for documentation, so its route is the default route of any host.
  constexpr const char* kOtherNetwork = "192.0.2.1";
  network.source = distributed::address_towards(network.master_addr.empty() ? kOtherNetwork : network.master_addr);
  return network;
}

}  // namespace trainer::doctor
