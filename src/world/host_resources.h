#pragma once
// What this process may use of its host.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace trainer::world {

// Cores that this process may keep busy: its affinity mask or the cgroup's CPU quota, shared with `num_sharing` - 1 other processes of
// the run, or Slurm's SLURM_CPUS_PER_TASK, whichever is least; at least 1.
int available_cpus(int num_sharing = 1);

// The cores of this process's affinity mask ("0,1,4"). Processes with the same mask share them.
std::string cpu_mask();

// The memory behind `folder`, which the processes of this host share through files, is less than NCCL may need for those of one host:
// what to say then; empty: it is enough, or there is no such folder.
std::string describe_small_shared_memory(const std::filesystem::path& folder = "/dev/shm");

// The name of this host.
std::string host_name();

// False when NO_COLOR is set (no-color.org) or the terminal is dumb.
bool wants_colour();

// "200000 100000" (quota and period of cgroup v2's cpu.max) as whole cores, at least 1; empty for "max" and for what is no quota.
std::optional<int> parse_cpu_max(std::string_view text);

}  // namespace trainer::world
