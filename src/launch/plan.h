#pragma once
// Determines what `trainer launch` starts: the arguments of its processes, their number, the environment of each, and a port.

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "launch/world/rank_env.h"

namespace trainer::launch {

// The flag with which the launcher starts another program than `trainer`; it has torchrun's name.
inline constexpr std::string_view kNoPython = "--no-python";

struct SplitArguments {
  std::vector<std::string> own;      // the launcher's
  std::vector<std::string> trainer;  // after -- or from the first argument that is not the launcher's
};
// `flags_with_value`: the launcher's options that take a value, such as "--gpus". Throws UsageError if one of them is among the trainer's
// arguments; those of another program (kNoPython) are not checked.
SplitArguments split_arguments(std::span<const std::string> args, std::span<const std::string> flags_with_value);

// The values of --nproc-per-node and --gpus.
struct Choice {
  std::string num_processes = "auto";  // or a number
  std::string gpus;                    // "0,2"; empty: the visible ones
};

// Where to look for an NVIDIA driver. A container sees the host's kernel driver, but the library and the devices only if it may use GPUs.
struct Driver {
  std::string library = "libcuda.so.1";
  std::filesystem::path gpus = "/proc/driver/nvidia/gpus";
  std::filesystem::path devices = "/dev";
};

// auto: one process per GPU, or 2 without a GPU. The GPUs are those of --gpus, else of CUDA_VISIBLE_DEVICES, else all that the driver lists
// and this process may use. Throws UsageError.
int num_processes(const Choice& choice, const world::Environment& environment, const Driver& driver = {});

// The environment of the process with `rank_env`: `inherited` with the variables that launchers set for one process replaced, and with
// CUDA_VISIBLE_DEVICES from `gpus` unless that is empty. From a list of MIG devices each process gets only its own.
std::vector<std::string> child_environment(std::span<const std::string> inherited, const world::RankEnv& rank_env, const std::string& gpus);

// Binds a free port of 127.0.0.1; no other socket can bind it until this object is destroyed. Throws Error if there is none.
class FreePort {
 public:
  FreePort();

  int number() const { return number_; }
  // The bound socket, to be inherited by the process that listens.
  int descriptor() const { return socket_.number(); }

 private:
  Descriptor socket_;
  int number_ = 0;
};

}  // namespace trainer::launch
