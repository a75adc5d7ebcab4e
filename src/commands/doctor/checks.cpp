#include "commands/doctor/checks.h"

#include <ATen/Version.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/program.h"
#include "base/text.h"
#include "distributed/addresses.h"
#include "launch/world/host_resources.h"
#include "launch/world/rank_env.h"

namespace trainer::doctor {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr uint64_t kGiB = uint64_t{1} << 30;

Findings ok(std::string text) { return {{Status::kOk, std::move(text)}}; }
Findings warning(std::string text, std::string fix) { return {{Status::kWarning, std::move(text), std::move(fix)}}; }
Findings failed(std::string text, std::string fix) { return {{Status::kFailed, std::move(text), std::move(fix)}}; }

// 12040 becomes "12.4".
std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

Findings judge_gpu(const device::GpuReport::Gpu& gpu, size_t number) {
  const auto text = fmt::format("cuda:{} {} ({}), compute capability {}.{}", number, gpu.name, gpu.pci_bus_id, gpu.capability_major,
                                gpu.capability_minor);
  if (!gpu.refusal.empty())
    return failed(text + ": " + gpu.refusal, "use a build whose LibTorch supports this GPU, or hide it with CUDA_VISIBLE_DEVICES");
  const auto with_memory = fmt::format("{}, {} of {} free", text, format_bytes(gpu.free_memory), format_bytes(gpu.total_memory));
  if (gpu.free_memory >= gpu.total_memory / 2) return ok(with_memory);
  return warning(with_memory, "`nvidia-smi` shows which programs use the memory of this GPU; end them, or use another GPU (--gpus)");
}

// Fails below `needed`, and warns below `enough`.
Findings judge_limit(std::optional<uint64_t> limit, uint64_t needed, uint64_t enough, const std::string& of, const std::string& fix) {
  const auto text = (limit ? std::to_string(*limit) : "unlimited") + of;
  if (!limit || *limit >= enough) return ok(text);
  if (*limit >= needed) return warning(text + ": too few for a run with many ranks", fix);
  return failed(text + ": too few for a rank", fix);
}

std::string to_text(const Measurement& measurement) {
  return fmt::format("{} in {:.1f} ms ({:.2f} GB/s), latency {:.0f} µs", format_bytes(kMeasuredBytes), measurement.seconds * 1e3,
                     kMeasuredBytes / measurement.seconds / 1e9, measurement.latency * 1e6);
}

}  // namespace

Findings judge_gpus(const Gpus& gpus) {
  if (!gpus.refusal.empty()) {
    return failed("there is an NVIDIA driver, but this program cannot use it: " + gpus.refusal,
                  "do what the message says, or update the driver; runtime.device: cpu trains on the CPU");
  }
  if (!gpus.has_driver) return ok("no NVIDIA driver: training uses the CPU");
  if (gpus.count() == 0) {
    return warning("there is an NVIDIA driver, but no GPU is visible: training uses the CPU",
                   "unset CUDA_VISIBLE_DEVICES, or start the container with --gpus all");
  }
  auto findings =
      ok(fmt::format("the driver supports CUDA {}; LibTorch uses CUDA {} and NCCL {}; {}", version_text(gpus.report.driver_version),
                     version_text(gpus.report.runtime_version), gpus.report.nccl_version, counted(gpus.count(), "GPU")));
  for (size_t i = 0; i < gpus.count(); ++i) findings.push_back(judge_gpu(gpus.report.gpus[i], i).front());
  return findings;
}

Findings judge_launcher(const std::string& description, std::optional<int> gpus_of_slurm, size_t num_gpus) {
  if (num_gpus > 0 || gpus_of_slurm.value_or(0) == 0) return ok(description);
  return warning(
      fmt::format("{}; Slurm has allocated {} on this node, but this program finds none", description, counted(*gpus_of_slurm, "GPU")),
      "start the container with access to GPUs, for example with apptainer's --nv");
}

Findings judge_cpus(const std::string& instructions, int num_installed, int num_available) {
  const bool is_slow = instructions == "DEFAULT";
  const auto text =
      fmt::format("{}; {} installed: training uses {}", is_slow ? "no AVX2" : instructions, counted(num_installed, "core"), num_available);
  if (is_slow) {
    return warning(text,
                   "train on a processor with AVX2, or remove ATEN_CPU_CAPABILITY from the environment: without vector instructions each "
                   "step takes several times as long");
  }
  if (num_available > 1 || num_installed == 1) return ok(text);
  return warning(text,
                 "give the job or container more cores (Slurm: --cpus-per-task, Docker: --cpus, Kubernetes: resources.limits.cpu): the "
                 "loader's threads share the only core with training");
}

Findings judge_memory(uint64_t total, std::optional<uint64_t> limit) {
  const bool is_limited = limit && *limit < total;
  const auto text = format_bytes(total) + (is_limited ? fmt::format("; the cgroup allows {}", format_bytes(*limit)) : "");
  if (!is_limited || *limit >= 2 * kGiB) return ok(text);
  return warning(text,
                 "give the job or container at least 2 GiB for each rank (Slurm: --mem, Docker: --memory, Kubernetes: "
                 "resources.limits.memory): the kernel kills a rank that exceeds the limit");
}

Findings judge_open_files(uint64_t limit) {
  // A rank needs one descriptor for each other rank in each process group, and one for each of its own files. Data sets add only a few.
  return judge_limit(limit, 256, 1024, " (ulimit -Hn)",
                     "set `ulimit -n 65536` before the start (Docker: --ulimit nofile=65536, systemd: LimitNOFILE)");
}

Findings judge_processes(std::optional<uint64_t> limit) {
  return judge_limit(limit, 64, 1024, " processes and threads (ulimit -u and the cgroup)",
                     "raise `ulimit -u` and the container's limit (Docker: --pids-limit, systemd: TasksMax)");
}

Findings judge_locked_memory(std::optional<uint64_t> limit, bool has_infiniband) {
  const auto text = (limit ? format_bytes(*limit) : "unlimited") + " (ulimit -l)";
  if (!limit) return ok(text);
  if (!has_infiniband) return ok(text + "; only InfiniBand needs more");
  return warning(text + ": NCCL cannot register its buffers with this host's InfiniBand adapter",
                 "set this limit to unlimited (Docker: --ulimit memlock=-1, Slurm: PropagateResourceLimitsExcept=MEMLOCK, systemd: "
                 "LimitMEMLOCK=infinity)");
}

Findings judge_host_name(const std::string& name, const std::string& problem, const std::string& address) {
  if (!problem.empty()) {
    return warning(problem,
                   "add this name to /etc/hosts or to the name server, or set MASTER_ADDR to a numeric address for runs on several hosts; "
                   "runs on one host do not need the name");
  }
  const auto text = fmt::format("{} is {}", name, address);
  if (!distributed::is_loopback(address)) return ok(text);
  return ok(text + ", a loopback address: for runs on several hosts, set MASTER_ADDR to a name or address that the other hosts can reach");
}

Findings judge_network(const std::string& master_addr, const std::string& source) {
  if (master_addr.empty()) return ok(source.empty() ? "there is no route to other hosts" : "other hosts are reached from " + source);
  if (!source.empty()) return ok(fmt::format("MASTER_ADDR={} is reached from {}", master_addr, source));
  return failed(fmt::format("no interface leads to MASTER_ADDR={}", master_addr),
                "correct MASTER_ADDR, which may be a name that this host does not know, or the routes of this host");
}

Findings judge_disk(const std::string& folder, const std::string& problem, uint64_t free) {
  if (!problem.empty()) {
    return failed(fmt::format("{}: {}", folder, problem),
                  "set output_dir (here: --output-dir) to a folder on a disk with space and locks, where this user may write");
  }
  const auto text = fmt::format("{}: {} free", folder, format_bytes(free));
  if (free >= kGiB) return ok(text);
  return warning(text, "free some space, or set output_dir to another disk: three checkpoints of a ResNet-50 take 600 MB");
}

std::string try_folder(const fs::path& folder) {
  const auto because = [](const char* what) { return fmt::format("{}: {}", what, std::generic_category().message(errno)); };
  const auto path = folder / fmt::format(".trainer-doctor-{}", getpid());
  const auto file = open_regular_file(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
  if (file.number() < 0) return because("no file can be written");
  const bool is_locked = flock(file.number(), LOCK_EX | LOCK_NB) == 0;
  // A run waits for its folder after a crash if the file system has no locks.
  const auto no_lock = is_locked ? "" : because("files cannot be locked (mount it with locks: Lustre: flock; NFS: without nolock)");
  unlink(path.c_str());
  const std::string content(size_t{32} << 20, 'x');
  std::string_view rest = content;
  if (!write_all(file.number(), rest) || fsync(file.number()) != 0) return because("32 MiB cannot be written");
  return no_lock;
}

Findings judge_gloo(const Measurement& measurement) {
  constexpr double kSlowLatency = 5e-3;
  constexpr double kSlowSeconds = kMeasuredBytes / 0.1e9;
  if (!measurement.problem.empty()) {
    return failed("two processes cannot train together: " + measurement.problem,
                  "fix the problem that the message names; check for a firewall on the loopback interface, and check GLOO_SOCKET_IFNAME");
  }
  const auto text = "gloo: " + to_text(measurement);
  if (measurement.latency <= kSlowLatency && measurement.seconds <= kSlowSeconds) return ok(text);
  return warning(text + ": slow", "use top to find other programs on these cores, and give each rank its own cores (runtime.threads)");
}

Findings judge_nccl(const Measurement& measurement) {
  constexpr double kSlowSeconds = kMeasuredBytes / 3e9;
  if (!measurement.problem.empty()) {
    return failed("NCCL does not work: " + measurement.problem,
                  "NCCL_DEBUG=INFO in the environment shows its steps; distributed.backend: gloo trains without NCCL, more slowly");
  }
  const auto text = "NCCL: " + to_text(measurement);
  if (measurement.seconds <= kSlowSeconds) return ok(text);
  return warning(text + ": slow", "check that `nvidia-smi topo -m` shows a direct path and that NCCL_P2P_DISABLE is not set");
}

namespace {

// For two processes that start and measure, a driver and a slow disk.
constexpr seconds kLong{60};
constexpr seconds kShort{10};

// Returns nothing if there is no result within the limit; the call then continues in its thread.
template <class Function>
auto within(std::chrono::milliseconds limit, Function call) -> std::optional<decltype(call())> {
  std::packaged_task<decltype(call())()> task(std::move(call));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  if (result.wait_for(limit) == std::future_status::timeout) return std::nullopt;
  return result.get();
}

Findings check_memory(const Subject&) {
  const auto total = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return judge_memory(total, world::cgroup_memory());
}

Findings check_launcher(const Subject& subject) {
  const auto rank_env = world::find_rank_env({}, world::process_environment());
  return judge_launcher(rank_env.description, rank_env.slurm_gpus, subject.gpus.count());
}

Findings check_shared_memory(const Subject& subject) {
  if (subject.gpus.count() < 2) return ok("/dev/shm is needed only by NCCL between several GPUs");
  const auto text = world::describe_small_shared_memory();
  if (text.empty()) return ok("/dev/shm is large enough for NCCL");
  return warning(text, "Kubernetes: mount an emptyDir with medium: Memory at /dev/shm");
}

// Training raises the limit itself, if it may.
Findings check_open_files(const Subject&) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return judge_open_files(limit.rlim_max);
}

Findings check_processes(const Subject&) {
  const auto user = world::limit_of(RLIMIT_NPROC);
  const auto group = world::cgroup_processes();
  return judge_processes(user && group ? std::min(*user, *group) : (user ? user : group));
}

bool has_infiniband() {
  std::error_code none;
  return !fs::is_empty("/sys/class/infiniband", none) && !none;
}

Findings check_host_name(const Subject&) {
  const auto name = host_name();
  return judge_host_name(name, distributed::resolution_problem(name), distributed::address_towards(name));
}

Findings check_network(const Subject&) {
  // An address that is reserved for documentation, so its route is the default route of any host.
  constexpr const char* kOtherNetwork = "192.0.2.1";
  const auto master_addr = world::process_environment()("MASTER_ADDR").value_or("");
  return judge_network(master_addr, distributed::address_towards(master_addr.empty() ? kOtherNetwork : master_addr));
}

// The folder or, if it does not exist, the nearest one above it that does.
Findings check_output_dir(const Subject& subject) {
  std::error_code error;
  auto folder = fs::absolute(subject.output_dir, error);
  while (!fs::exists(folder, error) && folder != folder.parent_path()) folder = folder.parent_path();
  return judge_disk(folder.string(), try_folder(folder), fs::space(folder, error).available);
}

constexpr auto kChecks = std::to_array<Check>({
    {"LibTorch", kShort, [](const Subject&) { return ok(TORCH_VERSION); }},
    {"GPU", kShort, [](const Subject& subject) { return judge_gpus(subject.gpus); }},
    {"launcher", kShort, check_launcher},
    {"processor", kShort, [](const Subject&) { return judge_cpus(at::get_cpu_capability(), get_nprocs(), world::available_cpus()); }},
    {"memory", kShort, check_memory},
    {"shared memory", kShort, check_shared_memory},
    {"open files", kShort, check_open_files},
    {"processes", kShort, check_processes},
    {"locked memory", kShort, [](const Subject&) { return judge_locked_memory(world::limit_of(RLIMIT_MEMLOCK), has_infiniband()); }},
    {"host name", kShort, check_host_name},
    {"network", kShort, check_network},
    {"output_dir", kLong, check_output_dir},
    {"all_reduce", kLong, [](const Subject&) { return judge_gloo(measure("gloo")); }},
    {"GPU all_reduce", kLong, [](const Subject& subject) { return subject.gpus.count() < 2 ? Findings() : judge_nccl(measure("nccl")); }},
});

Gpus read_gpus() {
  const auto cuda = device::open_cuda_module();
  Gpus gpus{.has_driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr, .refusal = cuda.refusal};
  if (cuda.module != nullptr) gpus.report = cuda.module->gpu_report();
  return gpus;
}

}  // namespace

std::span<const Check> all_checks() { return kChecks; }

Findings run(const Check& check, const Subject& subject) {
  try {
    auto findings = within(check.limit, [run = check.run, subject] { return run(subject); });
    if (findings) return std::move(*findings);
    return failed(
        fmt::format("no result within {}", format_duration(check.limit)),
        "look for a file server (`df`) or a name server (`getent hosts NAME`) that does not respond, or a hanging driver (`dmesg`)");
  } catch (const std::exception& error) {
    return failed(error.what(), "fix the problem that the message names");
  }
}

Gpus find_gpus() {
  auto gpus = within(kLong, read_gpus);
  if (gpus) return std::move(*gpus);
  return {.has_driver = true, .refusal = fmt::format("it has not responded within {}; `dmesg` may show why", format_duration(kLong))};
}

}  // namespace trainer::doctor
