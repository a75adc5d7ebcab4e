#pragma once
// Resources of the host that this process may use, and properties of the host and the terminal.

#include <sys/resource.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>

#include "launch/world/rank_env.h"

namespace trainer::world {

// The cores of the affinity mask or of the cgroup's CPU quota, divided by the `num_sharing` processes of the run that share them; at most
// Slurm's SLURM_CPUS_PER_TASK and at least 1.
int available_cpus(int num_sharing = 1);

// How many threads compute, and one line for the user with the reason: "2 compute threads: OMP_NUM_THREADS=2".
struct ComputeThreads {
  int count = 1;
  std::string description = {};
};

// OMP_NUM_THREADS if the user has set it, else available_cpus(). Torchrun sets it to 1 for several processes per host, which then does not
// count.
ComputeThreads default_compute_threads(int num_sharing = 1, const Environment& environment = process_environment());

// The cores of this process's affinity mask ("0,1,4"). Processes with the same mask share them.
std::string cpu_mask();

// A warning if `folder`, the shared memory of this host, is smaller than NCCL may need; else empty.
std::string describe_small_shared_memory(const std::filesystem::path& folder = "/dev/shm");

// False if NO_COLOR is set (no-color.org), or if TERM is dumb, empty or not set.
bool wants_colour();

// Whether stderr is a terminal on which a line can be erased and drawn again; not if TERM is dumb, empty or not set.
bool can_redraw_lines();

// Where the kernel shows a process its cgroups, through which a container, Slurm or systemd limits resources.
struct CgroupFiles {
  std::filesystem::path groups = "/proc/self/cgroup";
  std::filesystem::path mount = "/sys/fs/cgroup";
};

// The lowest limit of this process's group and of its ancestors; empty: no limit, or no cgroups.
std::optional<int> cgroup_cpus(const CgroupFiles& files = {});         // in whole cores, at least 1
std::optional<uint64_t> cgroup_memory(const CgroupFiles& files = {});  // in bytes
std::optional<uint64_t> cgroup_processes(const CgroupFiles& files = {});
// Of this process (ulimit); empty: unlimited.
std::optional<uint64_t> limit_of(__rlimit_resource_t resource);

// The limits on threads, which the system's errors do not name: "user 1000 may have 64 processes and threads together (ulimit -u)".
std::string describe_process_limits();

// Throws an Error that names the limits if `count` more threads cannot run at the same time.
void check_threads(int count);

// Throws an Error that names the limit if it leaves this process too little address space to load and use LibTorch.
void check_address_space();

// Raises the limit on open files, or throws an Error that names it, if it is too low for one of `num_ranks` ranks, because LibTorch would
// wait for connections without an end.
void check_open_files(int num_ranks);

// The text of the Error of check_threads() if `error` means that a std::thread could not be started; empty for other errors.
std::string explain_thread_limit(const std::exception& error);

}  // namespace trainer::world
