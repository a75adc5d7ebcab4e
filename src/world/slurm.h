#pragma once
// The compact lists that Slurm puts into the environment.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainer::world {

// "2(x2),1" (SLURM_STEP_TASKS_PER_NODE): tasks on the node with this index, here 2, 2 and 1; empty for another index and for a
// malformed text.
std::optional<int> tasks_on_node(std::string_view counts, int64_t node);

// The first name of a node list: "n05" of "n[05-07,9],m3"; empty when the list is malformed.
std::string first_host(std::string_view hosts);

// What is wrong with so many tasks of a step on a host where Slurm has given it so many GPUs, and the cure; empty: nothing. `num_gpus` 0:
// Slurm mentions none, and may not know of those that are there.
std::string too_few_gpus(int num_tasks, int num_gpus);
std::string idle_gpus(int num_tasks, int num_gpus);

// A port that all tasks of a step compute alike: 20000 + (61 job + step) mod 12768, which is 20000 to 32767, below Linux's ephemeral
// ports. Steps of one job and jobs that follow each other get different ones.
int step_port(uint64_t job, uint64_t step);

}  // namespace trainer::world
