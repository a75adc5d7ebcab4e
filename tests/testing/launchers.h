#pragma once
// Environment variables that launchers set.

#include <map>
#include <optional>
#include <string>

#include "launch/world/rank_env.h"

namespace trainer::world {

using Variables = std::map<std::string, std::string>;

// An environment with these variables. The variables must outlive it.
inline Environment of(const Variables& variables) {
  return [&variables](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

inline Variables operator+(Variables one, const Variables& other) {
  for (const auto& [name, value] : other) one[name] = value;
  return one;
}

// Values recorded from real launchers (torchrun 2.11, Slurm 22.05, Open MPI 4.1, MPICH 4.0); only the variables that the program reads.
inline const Variables kTorchrun = {{"RANK", "1"},
                                    {"WORLD_SIZE", "4"},
                                    {"LOCAL_RANK", "1"},
                                    {"LOCAL_WORLD_SIZE", "2"},
                                    {"MASTER_ADDR", "127.0.0.1"},
                                    {"MASTER_PORT", "29500"},
                                    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                    {"TORCHELASTIC_RESTART_COUNT", "0"}};
// sbatch -N2 -n4: the batch script itself, outside any step.
inline const Variables kBatchShell = {{"SLURM_JOB_ID", "3"},        {"SLURM_PROCID", "0"},           {"SLURM_LOCALID", "0"},
                                      {"SLURM_NODEID", "0"},        {"SLURM_NTASKS", "4"},           {"SLURM_TASKS_PER_NODE", "3,1"},
                                      {"SLURM_NODELIST", "n[1-2]"}, {"SLURM_JOB_NODELIST", "n[1-2]"}};
// srun -N2 -n3: the last task.
inline const Variables kStep = {{"SLURM_JOB_ID", "1"},
                                {"SLURM_STEP_ID", "0"},
                                {"SLURM_PROCID", "2"},
                                {"SLURM_LOCALID", "0"},
                                {"SLURM_NODEID", "1"},
                                {"SLURM_NTASKS", "3"},
                                {"SLURM_STEP_NUM_TASKS", "3"},
                                {"SLURM_TASKS_PER_NODE", "2,1"},
                                {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
                                {"SLURM_JOB_NODELIST", "n[1-2]"},
                                {"SLURM_STEP_NODELIST", "n[1-2]"}};
inline const Variables kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
inline const Variables kMpich = {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "3"}, {"PMI_FD", "9"}};
// The step in which srun started mpirun's daemons, one on each of two nodes.
inline const Variables kStepOfDaemons =
    kStep + Variables{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}};
inline const Variables kMaster = {{"MASTER_ADDR", "h0"}, {"MASTER_PORT", "4000"}};

}  // namespace trainer::world
