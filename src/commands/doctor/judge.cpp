#include "commands/doctor/judge.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "distributed/addresses.h"

namespace trainer::doctor {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

std::string to_text(std::optional<uint64_t> limit) { return limit ? std::to_string(*limit) : "unlimited"; }

}  // namespace

Finding judge_cpus(const Cpus& cpus) {
  auto text = fmt::format("{}{}; {} installed", cpus.instructions == "DEFAULT" ? "no AVX2" : cpus.instructions,
                          cpus.has_amx ? " and AMX" : "", counted(cpus.installed, "core"));
  if (cpus.allowed < cpus.installed) text += fmt::format(", {} allowed by the affinity mask", cpus.allowed);
  if (cpus.quota) text += fmt::format(", {} by the cgroup", *cpus.quota);
  text += fmt::format(": training uses {}", cpus.available);
  if (cpus.instructions == "DEFAULT") {
    return warning(std::move(text),
                   "train on a processor with AVX2, or remove ATEN_CPU_CAPABILITY from the environment: without vector instructions each "
                   "step takes several times as long");
  }
  if (cpus.available < cpus.installed && cpus.available == 1) {
    return warning(std::move(text),
                   "give the job or container more cores (Slurm: --cpus-per-task, Docker: --cpus, Kubernetes: resources.limits.cpu): the "
                   "loader's threads share the only core with training");
  }
  return ok(std::move(text));
}

Finding judge_memory(const Memory& memory) {
  const bool is_limited = memory.limit && *memory.limit < memory.total;
  auto text = fmt::format("{}, {} available", format_bytes(memory.total), format_bytes(memory.available));
  if (is_limited) text += fmt::format("; the cgroup allows {}", format_bytes(*memory.limit));
  if (is_limited && *memory.limit < 2 * kGiB) {
    return warning(std::move(text),
                   "give the job or container at least 2 GiB for each rank (Slurm: --mem, Docker: --memory, Kubernetes: "
                   "resources.limits.memory): the kernel kills a rank that exceeds the limit");
  }
  if (memory.available < kGiB) return warning(std::move(text), "end other programs, or use another host: ranks may run out of memory");
  return ok(std::move(text));
}

Finding judge_shared_memory(std::optional<uint64_t> capacity, int num_gpus) {
  if (!capacity) {
    if (num_gpus < 2) return ok("/dev/shm does not exist; only NCCL between several GPUs needs it");
    return failed("/dev/shm does not exist, but NCCL needs it for communication between GPUs of this host",
                  "mount a tmpfs of at least 1 GiB at /dev/shm");
  }
  auto text = fmt::format("/dev/shm has {}", format_bytes(*capacity));
  if (*capacity >= kGiB) return ok(std::move(text));
  if (num_gpus < 2) return ok(text + ", which is enough without several GPUs");
  return warning(text + ", but NCCL may need 1 GiB of it for communication between GPUs of this host",
                 "start the container with --ipc=host or --shm-size=1g");
}

Finding judge_open_files(std::optional<uint64_t> limit) {
  // A rank needs one descriptor for each other rank in each process group, and one for each of its own files. Data sets add only a few.
  constexpr uint64_t kNeeded = 256;
  constexpr uint64_t kEnough = 1024;
  auto text = to_text(limit) + " (ulimit -n)";
  const std::string fix = "set `ulimit -n 65536` before the start (Docker: --ulimit nofile=65536, systemd: LimitNOFILE)";
  if (!limit || *limit >= kEnough) return ok(std::move(text));
  if (*limit >= kNeeded) return warning(text + ": too few for a run with many ranks", fix);
  return failed(text + ": too few for the sockets and files of a rank", fix);
}

Finding judge_processes(std::optional<uint64_t> limit) {
  constexpr uint64_t kNeeded = 64;
  constexpr uint64_t kEnough = 1024;
  auto text = to_text(limit) + " processes and threads (ulimit -u and the cgroup)";
  const std::string fix = "raise `ulimit -u` and the container's limit (Docker: --pids-limit, systemd: TasksMax)";
  if (!limit || *limit >= kEnough) return ok(std::move(text));
  if (*limit >= kNeeded) return warning(text + ": possibly too few for ranks with threads of LibTorch, NCCL and the loader", fix);
  return failed(text + ": too few for the threads of a rank", fix);
}

Finding judge_locked_memory(std::optional<uint64_t> limit, bool has_infiniband) {
  auto text = limit ? format_bytes(*limit) + " (ulimit -l)" : std::string("unlimited (ulimit -l)");
  if (!limit) return ok(std::move(text));
  if (!has_infiniband) return ok(text + "; only InfiniBand needs more");
  return warning(text + ": NCCL cannot register its buffers with this host's InfiniBand adapter",
                 "set this limit to unlimited (Docker: --ulimit memlock=-1, Slurm: PropagateResourceLimitsExcept=MEMLOCK, systemd: "
                 "LimitMEMLOCK=infinity)");
}

Finding judge_launch(const Launch& launch, int num_gpus) {
  if (!launch.problem.empty())
    return failed(launch.problem, "correct or unset these environment variables; each run that is started in this shell reads them");
  auto text = launch.description;
  if (!launch.slurm_job.empty()) text += fmt::format("; Slurm job {}", launch.slurm_job);
  if (launch.is_container) text += "; in a container";
  if (launch.slurm_gpus.value_or(0) > 0 && num_gpus == 0) {
    return warning(
        fmt::format("{}; Slurm has allocated {} on this node, but this program finds none", text, counted(*launch.slurm_gpus, "GPU")),
        "start the container with access to GPUs, for example with apptainer's --nv");
  }
  return ok(std::move(text));
}

Finding judge_disk(const Disk& disk) {
  constexpr double kSlow = 50e6;
  if (!disk.problem.empty()) {
    return failed(disk.problem, "set output_dir (here: --output-dir) to a folder on a disk with space, where this user may write");
  }
  auto text = fmt::format("{}: {} free, written at {:.0f} MB/s", disk.folder, format_bytes(disk.free), disk.bytes_per_second / 1e6);
  if (!disk.missing.empty()) {
    return warning(fmt::format("{}, without {}", text, disk.missing),
                   "without locks, runs wait after a crash (mount it with them: Lustre: flock; NFS: without nolock; SMB: without nobrl); "
                   "without symbolic links, last.pt and best.pt are copies; without larger files, larger checkpoints cannot be saved "
                   "(ulimit -f unlimited); or set output_dir to another file system");
  }
  if (disk.free < kGiB) {
    return warning(std::move(text), "free some space, or set output_dir to another disk: three checkpoints of a ResNet-50 take 600 MB");
  }
  if (disk.bytes_per_second < kSlow) {
    return warning(std::move(text),
                   "set output_dir to a faster disk, or save less often (checkpoint.every_epochs): a checkpoint of a ResNet-50 has 200 MB");
  }
  return ok(std::move(text));
}

Finding judge_images(const std::string& problem) {
  if (problem.empty()) return ok("OpenCV and libjpeg: a JPEG file was written and read");
  return warning("data sets of image files cannot be used: " + problem,
                 "if this program is from a bundle, unpack the bundle again: it contains libtrainer_images.so");
}

namespace {

// 12040 becomes "12.4".
std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

Finding judge_driver(const Gpus& gpus) {
  if (!gpus.refusal.empty()) {
    return failed("there is an NVIDIA driver, but this program cannot use it: " + gpus.refusal,
                  "do what the message says, or update the driver; runtime.device: cpu trains on the CPU");
  }
  if (!gpus.has_driver) return ok("no NVIDIA driver: training uses the CPU");
  if (gpus.count() == 0) {
    return warning("there is an NVIDIA driver, but no GPU is visible: training uses the CPU",
                   "unset CUDA_VISIBLE_DEVICES, or start the container with --gpus all");
  }
  return ok(fmt::format("the driver supports CUDA {}; LibTorch uses CUDA {} and NCCL {}; {}", version_text(gpus.report.driver_version),
                        version_text(gpus.report.runtime_version), gpus.report.nccl_version, counted(gpus.count(), "GPU")));
}

std::vector<Finding> judge_gpus(const Gpus& gpus) {
  std::vector<Finding> findings;
  for (const auto& gpu : gpus.report.gpus) {
    auto text = fmt::format("cuda:{} {} ({}), compute capability {}.{}", findings.size(), gpu.name, gpu.pci_bus_id, gpu.capability_major,
                            gpu.capability_minor);
    if (!gpu.refusal.empty()) {
      findings.push_back(failed(fmt::format("{}: {}", text, gpu.refusal),
                                "use a build whose LibTorch supports this GPU, or hide it with CUDA_VISIBLE_DEVICES"));
      continue;
    }
    text += fmt::format(", {} of {} free", format_bytes(gpu.free_memory), format_bytes(gpu.total_memory));
    if (gpu.free_memory < gpu.total_memory / 2) {
      findings.push_back(
          warning(std::move(text), "`nvidia-smi` shows which programs use the memory of this GPU; end them, or use another GPU (--gpus)"));
    } else {
      findings.push_back(ok(std::move(text)));
    }
  }
  return findings;
}

std::vector<Finding> judge_links(const Gpus& gpus) {
  if (gpus.count() < 2) return {};
  std::vector<std::string> pairs;
  for (int device = 0; device < gpus.count(); ++device) {
    for (const int other : gpus.report.gpus[static_cast<size_t>(device)].unreachable) {
      if (device < other) pairs.push_back(fmt::format("{}-{}", device, other));
    }
  }
  if (pairs.empty()) return {ok("each GPU can read the memory of every other GPU directly")};
  return {
      warning(fmt::format("no direct access between GPUs {}: NCCL copies through the memory of the host", join(pairs, ", ")),
              "`nvidia-smi topo -m` shows how the GPUs are connected; in virtual machines and with an IOMMU, direct access may be off")};
}

namespace {

std::string to_text(const Measurement& measurement, double elapsed) {
  return fmt::format("{} in {:.1f} ms ({:.2f} GB/s)", format_bytes(static_cast<uint64_t>(measurement.num_bytes)), elapsed * 1e3,
                     static_cast<double>(measurement.num_bytes) / elapsed / 1e9);
}

std::string to_text(const Measurement& measurement) {
  return fmt::format("{}, latency {:.0f} µs", to_text(measurement, measurement.seconds), measurement.latency * 1e6);
}

double bytes_per_second(const Measurement& measurement) { return static_cast<double>(measurement.num_bytes) / measurement.seconds; }

}  // namespace

Finding judge_host_name(const std::string& name, const std::vector<std::string>& addresses) {
  if (addresses.empty()) {
    return warning(fmt::format("{} has no address", name),
                   "add this name to /etc/hosts or to the name server, or set MASTER_ADDR to a numeric address for runs on several hosts; "
                   "runs on one host do not need the name");
  }
  const auto text = fmt::format("{} is {}", name, join(addresses, ", "));
  if (std::ranges::all_of(addresses, distributed::is_loopback)) {
    return ok(text +
              ", a loopback address: for runs on several hosts, set MASTER_ADDR to a name or address that the other hosts can reach");
  }
  return ok(text);
}

Finding judge_network(const Network& network) {
  std::vector<std::string> shown;
  for (const auto& interface : network.interfaces) shown.push_back(interface.name + " " + interface.address);
  const auto all = join(shown, ", ");
  if (!network.chosen_interface.empty()) {
    const bool exists = std::ranges::find(network.interfaces, network.chosen_interface, &Interface::name) != network.interfaces.end();
    if (exists) return ok(fmt::format("{}; gloo uses {} (GLOO_SOCKET_IFNAME)", all, network.chosen_interface));
    return failed(fmt::format("GLOO_SOCKET_IFNAME={}, but this host has {}", network.chosen_interface, all),
                  "set GLOO_SOCKET_IFNAME to one of these interfaces, or unset this variable");
  }
  const auto source = std::ranges::find(network.interfaces, network.source, &Interface::address);
  if (!network.master_addr.empty()) {
    if (source != network.interfaces.end()) {
      return ok(fmt::format("{}; gloo uses {}, from which MASTER_ADDR={} is reached", all, source->name, network.master_addr));
    }
    return failed(fmt::format("{}; none leads to MASTER_ADDR={}", all, network.master_addr),
                  "correct MASTER_ADDR, which may be a name that this host does not know, or the routes of this host");
  }
  const auto loopback = std::ranges::find(network.interfaces, true, &Interface::is_loopback);
  if (loopback == network.interfaces.end()) {
    return failed(fmt::format("{}; no loopback interface, which connects the ranks of one host", all.empty() ? "none" : all),
                  "activate the loopback interface: ip link set lo up");
  }
  const auto text = fmt::format("{}; for runs on one host, gloo uses {}", all, loopback->name);
  if (source == network.interfaces.end()) return ok(text + "; there is no route to other hosts");
  return ok(fmt::format("{}, and for runs on several hosts the interface that leads to MASTER_ADDR ({} by default)", text, source->name));
}

Finding judge_gloo(const Measurement& measurement) {
  constexpr double kSlowLatency = 5e-3;
  constexpr double kSlow = 0.1e9;
  if (!measurement.problem.empty()) {
    return failed("two processes cannot train together: " + measurement.problem,
                  "fix the problem that the message names; check for a firewall on the loopback interface, and check GLOO_SOCKET_IFNAME");
  }
  const auto text = "gloo: " + to_text(measurement);
  if (measurement.latency > kSlowLatency || bytes_per_second(measurement) < kSlow) {
    return warning(text + ": slow", "use top to find other programs on these cores, and give each rank its own cores (runtime.threads)");
  }
  return ok(text);
}

Finding judge_shared_sums(const Measurement& measurement) {
  if (!measurement.problem.empty()) return failed("in shared memory: not measured, because gloo has failed", "see the line above");
  if (measurement.shared_memory_seconds > 0) return ok("in shared memory: " + to_text(measurement, measurement.shared_memory_seconds));
  return warning("two processes cannot map each other's memory, so sums on the CPU go through gloo",
                 "mount /proc, and let the container's security profile allow memfd_create and opening the other process's /proc/PID/fd");
}

Finding judge_nccl(const Measurement& measurement, int num_gpus) {
  constexpr double kSlow = 3e9;
  if (!measurement.problem.empty()) {
    return failed("NCCL does not work: " + measurement.problem,
                  "NCCL_DEBUG=INFO in the environment shows its steps; distributed.backend: gloo trains without NCCL, more slowly");
  }
  if (num_gpus == 1) return ok("NCCL starts; with one GPU there is nothing to measure");
  const auto text = "NCCL: " + to_text(measurement);
  if (bytes_per_second(measurement) < kSlow) {
    return warning(text + ": slow", "check that `nvidia-smi topo -m` shows a direct path and that NCCL_P2P_DISABLE is not set");
  }
  return ok(text);
}

}  // namespace trainer::doctor
