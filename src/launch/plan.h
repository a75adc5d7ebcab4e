#pragma once
// What `trainer launch` starts: whose arguments are whose, how many processes, and what each finds in its environment.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "world/rank_env.h"

namespace trainer::launch {

struct SplitArguments {
  std::vector<std::string> own;      // the launcher's
  std::vector<std::string> trainer;  // behind -- or from the first one on that is not the launcher's
};
// `flags_with_value`: the launcher's, such as "--gpus"; each is followed by its value, as a word of its own or after "=".
SplitArguments split_arguments(std::span<const std::string> args, std::span<const std::string> flags_with_value);

// The words of --nproc-per-node and --gpus.
struct Choice {
  std::string num_processes = "auto";  // or a number
  std::string gpus;                    // "0,2"; empty: those that are visible
};

// Where an NVIDIA driver shows itself. A container sees the kernel's part of its host's driver even when it was given no GPU; the
// library and the devices are there for those that it was given.
struct Driver {
  std::string library = "libcuda.so.1";
  std::filesystem::path gpus = "/proc/driver/nvidia/gpus";
  std::filesystem::path devices = "/dev";
};

// auto: one process per GPU; 2 where there is none. The GPUs are those of --gpus, else of CUDA_VISIBLE_DEVICES, else all that the
// driver lists and this process was given. Throws UsageError when the words are malformed or there are more processes than --gpus.
int num_processes(const Choice& choice, const world::Environment& environment, const Driver& driver = {});

// The environment of this process: "NAME=value".
std::vector<std::string> inherited_environment();

// The environment of the process at `place`: what is inherited, without what launchers have said of another process, and RANK,
// WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RESTART_COUNT after the
// first attempt, and the number of the socket that it is to listen on where there is one; `gpus`, when not empty, is CUDA_VISIBLE_DEVICES.
std::vector<std::string> child_environment(std::span<const std::string> inherited, const world::RankEnv& rank_env, const std::string& gpus);

}  // namespace trainer::launch
