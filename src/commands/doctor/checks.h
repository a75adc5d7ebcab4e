#pragma once
// The checks of `trainer doctor`: a measurement, judgements, which depend only on their arguments, and the table of checks, which read this
// host.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/cuda_module.h"
#include "trainer/error.h"

namespace trainer::doctor {

// A measurement by two processes that this program starts on its host. They connect and create process groups as in training.

inline constexpr int64_t kMeasuredBytes = int64_t{16} << 20;

// What the processes measured over their process group.
struct Measurement {
  std::string problem = {};  // why there is no result; empty: the rest is set
  double latency = 0;        // seconds of an all_reduce of one number
  double seconds = 0;        // of an all_reduce of kMeasuredBytes of each process
};

// The option of `trainer doctor` with which measure() starts its processes.
inline constexpr const char* kMeasureOption = "--measure";

// Starts two processes with `trainer launch` and waits for their end; they end with this process. `backend`: "gloo", or "nccl" with one GPU
// for each process.
Measurement measure(const std::string& backend);

// Runs in a process that measure() started: measures with the other one and, on rank 0, writes the result to stderr. Collective. Throws
// Error.
ExitCode run_measurement(const std::string& backend);

// kFailed: training would fail. kWarning: it would be slow, or would fail only in some set-ups.
enum class Status { kOk, kWarning, kFailed };

struct Finding {
  Status status = Status::kOk;
  std::string text;
  std::string fix = {};  // empty if the status is kOk
};
using Findings = std::vector<Finding>;

struct Gpus {
  bool has_driver = false;
  std::string refusal = {};       // why a driver that is there cannot be used; empty: it can
  device::GpuReport report = {};  // without GPUs if none can be used

  size_t count() const { return report.gpus.size(); }
};
// The first finding is about the driver; then there is one for each GPU.
Findings judge_gpus(const Gpus& gpus);
// `gpus_of_slurm`: allocated by Slurm to the tasks of this host.
Findings judge_launcher(const std::string& description, std::optional<int> gpus_of_slurm, size_t num_gpus);

// `instructions`: LibTorch's name for the vector instructions that it uses: "AVX512", "AVX2", "DEFAULT".
Findings judge_cpus(const std::string& instructions, int num_installed, int num_available);

// Bytes; `limit`: of the cgroups.
Findings judge_memory(uint64_t total, std::optional<uint64_t> limit);
Findings judge_open_files(uint64_t limit);
// `limit` empty: unlimited.
Findings judge_processes(std::optional<uint64_t> limit);
Findings judge_locked_memory(std::optional<uint64_t> limit, bool has_infiniband);

// `problem`: why the name has no address; empty: it has one. `address`: from which this host reaches itself by this name.
Findings judge_host_name(const std::string& name, const std::string& problem, const std::string& address);
// `master_addr`: MASTER_ADDR; empty: not set. `source`: the address from which this host reaches it or, if it is not set, other networks;
// empty: no route.
Findings judge_network(const std::string& master_addr, const std::string& source);

// `problem`: why no file can be written or locked in the folder; empty: it can. `free`: bytes.
Findings judge_disk(const std::string& folder, const std::string& problem, uint64_t free);
// Writes, locks and removes a file in `folder`, which exists. Returns why that is not possible; empty: it is.
std::string try_folder(const std::filesystem::path& folder);

Findings judge_gloo(const Measurement& measurement);
Findings judge_nccl(const Measurement& measurement);

// What the checks examine.
struct Subject {
  std::filesystem::path output_dir;
  Gpus gpus;
};
struct Check {
  const char* name;
  std::chrono::milliseconds limit;
  Findings (*run)(const Subject& subject);
};
// In the order of the output.
std::span<const Check> all_checks();

// The findings of `check`, or a finding that there was no result within the check's limit. The check's thread then continues with a copy of
// the subject, and the process should end without waiting for it. An exception becomes a failed finding.
Findings run(const Check& check, const Subject& subject);

// The driver and the GPUs, for Subject::gpus; to be called before the checks. A driver that does not respond is reported in Gpus::refusal.
Gpus find_gpus();

}  // namespace trainer::doctor
