#pragma once
// What the state of a host means for training. Functions of their arguments alone.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands/doctor/finding.h"

namespace trainer::doctor {

struct Cpus {
  std::string instructions;  // LibTorch's name for the vector instructions that it uses: "AVX512", "AVX2", "DEFAULT"
  bool has_amx = false;
  int installed = 1;
  int allowed = 1;           // by the affinity mask
  std::optional<int> quota;  // of the cgroups
  int available = 1;         // to this program, by default: the least of these and of Slurm's
};
Finding judge_cpus(const Cpus& cpus);

struct Memory {
  uint64_t total = 0;             // bytes
  uint64_t available = 0;         // on the whole host
  std::optional<uint64_t> limit;  // of the cgroups
};
Finding judge_memory(const Memory& memory);

// `capacity`: of /dev/shm in bytes; empty: it does not exist.
Finding judge_shared_memory(std::optional<uint64_t> capacity, int num_gpus);

// `limit` empty: unlimited.
Finding judge_open_files(std::optional<uint64_t> limit);
Finding judge_processes(std::optional<uint64_t> limit);
Finding judge_locked_memory(std::optional<uint64_t> limit, bool has_infiniband);

struct Launch {
  std::string decision;   // how the rank and the world size were found
  std::string problem;    // why they cannot be found; empty: they can
  std::string slurm_job;  // its number; empty: none
  bool is_container = false;
  std::optional<int> slurm_gpus;  // that Slurm has given the tasks of this host
};
Finding judge_launch(const Launch& launch, int num_gpus);

struct Disk {
  std::string folder;           // output_dir, or the folder above it in which it would be made
  std::string problem;          // why no file can be written or locked there; empty: it can
  uint64_t free = 0;            // bytes
  double bytes_per_second = 0;  // of writing, until the bytes are on the disk
};
Finding judge_disk(const Disk& disk);

// `problem`: why image files cannot be read; empty: they can.
Finding judge_images(const std::string& problem);

}  // namespace trainer::doctor
