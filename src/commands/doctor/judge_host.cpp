#include "commands/doctor/judge_host.h"

#include <fmt/format.h>

#include "base/text.h"

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
                   "loader's threads share this one with the training");
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
    return failed("/dev/shm does not exist, and NCCL needs it between the GPUs of one host", "mount a tmpfs of at least 1 GiB there");
  }
  auto text = fmt::format("/dev/shm has {}", format_bytes(*capacity));
  if (*capacity >= kGiB) return ok(std::move(text));
  if (num_gpus < 2) return ok(text + ", which is enough without several GPUs");
  return warning(text + ", and NCCL may need 1 GiB there between the GPUs of one host",
                 "start the container with --ipc=host or --shm-size=1g");
}

Finding judge_open_files(std::optional<uint64_t> limit) {
  // A rank has a connection to each other rank for each group, and its files; a shuffled LMDB or image folder needs few more.
  constexpr uint64_t kNeeded = 256;
  constexpr uint64_t kEnough = 1024;
  auto text = to_text(limit) + " (ulimit -n)";
  const std::string cure = "set `ulimit -n 65536` before the start (Docker: --ulimit nofile=65536, systemd: LimitNOFILE)";
  if (!limit || *limit >= kEnough) return ok(std::move(text));
  if (*limit >= kNeeded) return warning(text + ": too few for a run with many ranks", cure);
  return failed(text + ": too few for the sockets and files of a rank", cure);
}

Finding judge_processes(std::optional<uint64_t> limit) {
  constexpr uint64_t kNeeded = 64;
  constexpr uint64_t kEnough = 1024;
  auto text = to_text(limit) + " processes and threads (ulimit -u and the cgroup)";
  const std::string cure = "raise `ulimit -u` and the container's limit (Docker: --pids-limit, systemd: TasksMax)";
  if (!limit || *limit >= kEnough) return ok(std::move(text));
  if (*limit >= kNeeded) return warning(text + ": few for ranks with threads of LibTorch, NCCL and the loader", cure);
  return failed(text + ": too few for the threads of a rank", cure);
}

Finding judge_locked_memory(std::optional<uint64_t> limit, bool has_infiniband) {
  auto text = limit ? format_bytes(*limit) + " (ulimit -l)" : std::string("unlimited (ulimit -l)");
  if (!limit) return ok(std::move(text));
  if (!has_infiniband) return ok(text + "; only InfiniBand needs more");
  return warning(text + ": NCCL cannot register its buffers with this host's InfiniBand adapter",
                 "set it to unlimited (Docker: --ulimit memlock=-1, Slurm: PropagateResourceLimitsExcept=MEMLOCK, systemd: "
                 "LimitMEMLOCK=infinity)");
}

Finding judge_launch(const Launch& launch, int num_gpus) {
  if (!launch.problem.empty()) return failed(launch.problem, "correct or unset these variables, which each run in this shell reads");
  auto text = launch.decision;
  if (!launch.slurm_job.empty()) text += fmt::format("; Slurm job {}", launch.slurm_job);
  if (launch.is_container) text += "; in a container";
  if (launch.slurm_gpus.value_or(0) > 0 && num_gpus == 0) {
    return warning(fmt::format("{}; Slurm has given this node {}, but this program sees none", text, counted(*launch.slurm_gpus, "GPU")),
                   "start the container with its option for GPUs, such as apptainer's --nv");
  }
  return ok(std::move(text));
}

Finding judge_disk(const Disk& disk) {
  constexpr double kSlow = 50e6;
  if (!disk.problem.empty()) {
    return failed(disk.problem, "set output_dir (here: --output-dir) to a folder on a disk with space, where this user may write");
  }
  auto text = fmt::format("{}: {} free, written at {:.0f} MB/s", disk.folder, format_bytes(disk.free), disk.bytes_per_second / 1e6);
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
  return warning("data sets of image files cannot be used: " + problem, "install the package's libraries again, or build with OpenCV");
}

}  // namespace trainer::doctor
