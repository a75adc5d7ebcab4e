#pragma once
// Parses Slurm's environment variables and checks its allocation of GPUs.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainer::world {

// The number of tasks on the node with index `node`; "2(x2),1" (SLURM_STEP_TASKS_PER_NODE) stands for 2, 2 and 1.
std::optional<int> tasks_on_node(std::string_view counts, int64_t node);

// The first `limit` names of a node list: "n05", "n06", "n07", "n9", "m3" of "n[05-07,9],m3"; empty when the list is malformed.
std::vector<std::string> host_names(std::string_view hosts, size_t limit);

// The node of each task of a step, by rank, from its node list, its tasks on each node and SLURM_DISTRIBUTION (empty: not set). Empty if
// the tasks are not distributed in blocks (Slurm's default), because their nodes then do not follow from these variables.
std::vector<std::string> hosts_of_tasks(std::string_view hosts, std::string_view counts, std::string_view distribution, size_t num_tasks);

// The problem and what to do if a step has more tasks than GPUs, or GPUs without a task, on a host; else empty. `num_gpus`: 0 if Slurm
// reports none.
std::string too_few_gpus(int num_tasks, int num_gpus);
std::string idle_gpus(int num_tasks, int num_gpus);

// A port on which all tasks of a step agree: 20000 + (61 job + step) mod 12768. The ports 20000 to 32767 are below Linux's ephemeral ports.
// Steps of one job get different ports, and so do the first 61 steps of successive jobs.
int step_port(uint64_t job, uint64_t step);

}  // namespace trainer::world
