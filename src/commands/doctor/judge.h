#pragma once
// Judges whether the state of a host is suitable for training. The results depend only on the arguments.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commands/doctor/measure.h"
#include "device/cuda_module.h"

namespace trainer::doctor {

// kFailed: training would fail. kWarning: it would be slow, or would fail only in some set-ups.
enum class Status { kOk, kWarning, kFailed };

struct Finding {
  Status status = Status::kOk;
  std::string text;
  std::string fix = {};  // empty if the status is kOk
};

inline Finding ok(std::string text) { return {Status::kOk, std::move(text)}; }
inline Finding warning(std::string text, std::string fix) { return {Status::kWarning, std::move(text), std::move(fix)}; }
inline Finding failed(std::string text, std::string fix) { return {Status::kFailed, std::move(text), std::move(fix)}; }

struct Cpus {
  std::string instructions;  // LibTorch's name for the vector instructions that it uses: "AVX512", "AVX2", "DEFAULT"
  bool has_amx = false;
  int installed = 1;
  int allowed = 1;           // by the affinity mask
  std::optional<int> quota;  // of the cgroups
  int available = 1;         // by default for this program: the least of these limits and Slurm's
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
  std::string description;  // how the rank and the world size were found
  std::string problem;      // why they cannot be found; empty: they can
  std::string slurm_job;    // its number; empty: none
  bool is_container = false;
  std::optional<int> slurm_gpus;  // allocated by Slurm to the tasks of this host
};
Finding judge_launch(const Launch& launch, int num_gpus);

struct Disk {
  std::string folder;           // output_dir, or the folder in which it would be created
  std::string problem;          // why no file can be written there; empty: it can
  std::string missing;          // what the file system lacks; runs use replacements
  uint64_t free = 0;            // bytes
  double bytes_per_second = 0;  // of writing, until the bytes are on the disk
};
Finding judge_disk(const Disk& disk);

// `problem`: why image files cannot be read; empty: they can.
Finding judge_images(const std::string& problem);

// The GPUs of a host.

struct Gpus {
  bool has_driver = false;
  std::string refusal;       // why a driver that is there cannot be used; empty: it can
  device::GpuReport report;  // without GPUs if none can be used

  int count() const { return static_cast<int>(report.gpus.size()); }
};

Finding judge_driver(const Gpus& gpus);
// One finding for each GPU.
std::vector<Finding> judge_gpus(const Gpus& gpus);
// No findings with fewer than two GPUs.
std::vector<Finding> judge_links(const Gpus& gpus);

// The network interfaces of a host, and the measurements (measure.h).

// `addresses`: the numeric addresses of the name; empty: it has none.
Finding judge_host_name(const std::string& name, const std::vector<std::string>& addresses);

struct Interface {
  std::string name;
  std::string address;  // numeric
  bool is_loopback = false;
};
struct Network {
  std::vector<Interface> interfaces;  // the active ones, one entry per address
  std::string chosen_interface;       // GLOO_SOCKET_IFNAME; empty: not set
  std::string master_addr;            // MASTER_ADDR; empty: not set
  std::string source;  // the address from which this host reaches MASTER_ADDR or, if that is not set, other networks; empty: no route
};
Finding judge_network(const Network& network);

Finding judge_gloo(const Measurement& measurement);
Finding judge_shared_sums(const Measurement& measurement);
// `num_gpus`: the number of GPUs that took part.
Finding judge_nccl(const Measurement& measurement, int num_gpus);

}  // namespace trainer::doctor
