#pragma once
// The limits that a container, Slurm or systemd sets through cgroups.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace trainer::world {

// Where the kernel shows a process its cgroups.
struct CgroupFiles {
  std::filesystem::path groups = "/proc/self/cgroup";
  std::filesystem::path mount = "/sys/fs/cgroup";
};

// The least limit of this process's group and of those above it; empty: none, or no cgroups.
std::optional<int> cgroup_cpus(const CgroupFiles& files = {});         // whole cores, at least 1
std::optional<uint64_t> cgroup_memory(const CgroupFiles& files = {});  // bytes
std::optional<uint64_t> cgroup_processes(const CgroupFiles& files = {});

// "200000 100000" (quota and period of cgroup v2's cpu.max) as whole cores, at least 1; empty for "max" and for malformed text.
std::optional<int> parse_cpu_max(std::string_view text);

}  // namespace trainer::world
