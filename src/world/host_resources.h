#pragma once
// Resources of the host that this process may use.

#include <filesystem>
#include <string>

#include "world/rank_env.h"

namespace trainer::world {

// The number of cores that this process may use: those of its affinity mask or the cgroup's CPU quota, whichever is less, divided by the
// `num_sharing` processes of the run that share them; at most Slurm's SLURM_CPUS_PER_TASK and at least 1.
int available_cpus(int num_sharing = 1);

// How many threads compute, and one line for the user of what has decided it: "2 compute threads: OMP_NUM_THREADS=2".
struct ComputeThreads {
  int count = 1;
  std::string decision = {};
};

// Where the configuration leaves it open: OMP_NUM_THREADS if the user has set it, else available_cpus(). torchrun sets the variable to 1
// for several processes of a host unless it is set, so that 1 counts as not set under torchrun.
ComputeThreads default_compute_threads(int num_sharing = 1, const Environment& environment = process_environment());

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
