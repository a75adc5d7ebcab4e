#pragma once
// Resources of the host that this process may use.

#include <filesystem>
#include <string>

namespace trainer::world {

// The number of cores that this process may use: those of its affinity mask or the cgroup's CPU quota, whichever is less, divided by the
// `num_sharing` processes of the run that share them; at most Slurm's SLURM_CPUS_PER_TASK and at least 1.
int available_cpus(int num_sharing = 1);

// The cores of this process's affinity mask ("0,1,4"). Processes with the same mask share them.
std::string cpu_mask();

// A warning if `folder`, through whose files the processes of this host share memory, is smaller than NCCL may need between them; empty if
// it is large enough or does not exist.
std::string describe_small_shared_memory(const std::filesystem::path& folder = "/dev/shm");

// The name of this host.
std::string host_name();

// False when NO_COLOR is set (no-color.org) or the terminal is dumb.
bool wants_colour();

// Whether stderr is a terminal on which a line can be erased and drawn again; not if TERM is dumb, empty or not set.
bool can_redraw_lines();

}  // namespace trainer::world
