#include "commands/doctor/checks.h"

#include <gmock/gmock.h>

#include <future>

#include "tests/testing/file_size_limit.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer::doctor {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Matcher;

constexpr uint64_t kGiB = uint64_t{1} << 30;

Matcher<Finding> is_finding(Status status, const std::string& text, const Matcher<std::string>& fix) {
  return AllOf(Field("status", &Finding::status, status), Field("text", &Finding::text, HasSubstr(text)), Field("fix", &Finding::fix, fix));
}
Matcher<Findings> IsOk(const std::string& text) { return ElementsAre(is_finding(Status::kOk, text, "")); }
Matcher<Findings> IsWarning(const std::string& text, const std::string& fix) {
  return ElementsAre(is_finding(Status::kWarning, text, HasSubstr(fix)));
}
Matcher<Findings> IsFailed(const std::string& text, const std::string& fix) {
  return ElementsAre(is_finding(Status::kFailed, text, HasSubstr(fix)));
}

std::promise<void> release;

TEST(Checks, OneThatHangsHasAFinding) {
  const Check hanging{"a file", std::chrono::milliseconds(20), [](const Subject&) {
                        release.get_future().wait();
                        return Findings();
                      }};
  EXPECT_THAT(run(hanging, {}), IsFailed("no result within 0.0s", "that does not respond"));
  release.set_value();
}

TEST(Checks, AnExceptionIsAFinding) {
  const Check throwing{"a file", std::chrono::seconds(10), [](const Subject&) -> Findings { throw Error("too many files"); }};
  EXPECT_THAT(run(throwing, {}), IsFailed("too many files", "fix the problem that the message names"));
}

device::GpuReport::Gpu gpu(uint64_t free_gib, const std::string& refusal = "") {
  return {.name = "H100",
          .pci_bus_id = "0000:3b:00.0",
          .capability_major = 9,
          .capability_minor = 0,
          .total_memory = 80 * kGiB,
          .free_memory = free_gib * kGiB,
          .refusal = refusal};
}

TEST(Checks, Gpus) {
  EXPECT_THAT(judge_gpus({}), IsOk("no NVIDIA driver: training uses the CPU"));
  EXPECT_THAT(judge_gpus({.has_driver = true, .refusal = "driver too old"}),
              IsFailed("there is an NVIDIA driver, but this program cannot use it: driver too old", "update the driver"));
  EXPECT_THAT(judge_gpus({.has_driver = true}), IsWarning("no GPU is visible", "CUDA_VISIBLE_DEVICES"));
  const device::GpuReport report = {.driver_version = 12080,
                                    .runtime_version = 12060,
                                    .nccl_version = "2.26.2",
                                    .gpus = {gpu(79), gpu(39), gpu(79, "no kernel image is available")}};
  EXPECT_THAT(
      judge_gpus({.has_driver = true, .report = report}),
      ElementsAre(
          is_finding(Status::kOk, "the driver supports CUDA 12.8; LibTorch uses CUDA 12.6 and NCCL 2.26.2; 3 GPUs", ""),
          is_finding(Status::kOk, "cuda:0 H100 (0000:3b:00.0), compute capability 9.0, 79.0 GiB of 80.0 GiB free", ""),
          is_finding(Status::kWarning, "cuda:1 H100 (0000:3b:00.0), compute capability 9.0, 39.0 GiB of", HasSubstr("nvidia-smi")),
          is_finding(Status::kFailed, "cuda:2 H100 (0000:3b:00.0), compute capability 9.0: no kernel image", HasSubstr("CUDA_VISIBLE"))));
}

TEST(Checks, Launcher) {
  EXPECT_THAT(judge_launcher("one process", 2, 2), IsOk("one process"));
  EXPECT_THAT(judge_launcher("one process", 2, 0), IsWarning("one process; Slurm has allocated 2 GPUs on this node", "apptainer's --nv"));
}

TEST(Checks, Processor) {
  EXPECT_THAT(judge_cpus("AVX2", 1, 1), IsOk("AVX2; 1 core installed: training uses 1"));
  EXPECT_THAT(judge_cpus("DEFAULT", 4, 4), IsWarning("no AVX2; 4 cores installed: training uses 4", "train on a processor with AVX2"));
  EXPECT_THAT(judge_cpus("AVX2", 64, 1), IsWarning("64 cores installed: training uses 1", "Slurm: --cpus-per-task"));
}

TEST(Checks, Limits) {
  EXPECT_THAT(judge_memory(64 * kGiB, {}), IsOk("64.0 GiB"));
  EXPECT_THAT(judge_memory(64 * kGiB, 8 * kGiB), IsOk("64.0 GiB; the cgroup allows 8.0 GiB"));
  EXPECT_THAT(judge_memory(64 * kGiB, kGiB), IsWarning("; the cgroup allows 1.0 GiB", "at least 2 GiB for each rank (Slurm: --mem"));
  EXPECT_THAT(judge_open_files(1024), IsOk("1024 (ulimit -Hn)"));
  EXPECT_THAT(judge_open_files(1023), IsWarning("1023 (ulimit -Hn): too few for a run with many ranks", "ulimit -n 65536"));
  EXPECT_THAT(judge_open_files(255), IsFailed("255 (ulimit -Hn): too few for a rank", "--ulimit nofile=65536"));
  EXPECT_THAT(judge_processes({}), IsOk("unlimited processes and threads"));
  EXPECT_THAT(judge_processes(500), IsWarning("500 processes and threads (ulimit -u and the cgroup): too few for a run", "--pids-limit"));
  EXPECT_THAT(judge_locked_memory({}, true), IsOk("unlimited (ulimit -l)"));
  EXPECT_THAT(judge_locked_memory(1 << 16, false), IsOk("64.0 KiB (ulimit -l); only InfiniBand needs more"));
  EXPECT_THAT(judge_locked_memory(1 << 16, true), IsWarning("64.0 KiB (ulimit -l): NCCL cannot register", "--ulimit memlock=-1"));
}

TEST(Checks, Network) {
  EXPECT_THAT(judge_host_name("node1", "", "10.0.0.5"), IsOk("node1 is 10.0.0.5"));
  EXPECT_THAT(judge_host_name("node1", "", "127.0.1.1"), IsOk("node1 is 127.0.1.1, a loopback address: for runs on several hosts"));
  EXPECT_THAT(judge_host_name("node1", "the name node1 cannot be resolved", ""), IsWarning("the name node1 cannot", "/etc/hosts"));
  EXPECT_THAT(judge_network("", "10.0.0.5"), IsOk("other hosts are reached from 10.0.0.5"));
  EXPECT_THAT(judge_network("", ""), IsOk("there is no route to other hosts"));
  EXPECT_THAT(judge_network("node0", "10.0.0.5"), IsOk("MASTER_ADDR=node0 is reached from 10.0.0.5"));
  EXPECT_THAT(judge_network("node0", ""), IsFailed("no interface leads to MASTER_ADDR=node0", "correct MASTER_ADDR"));
}

TEST(Checks, Disk) {
  EXPECT_THAT(judge_disk("/runs", "", 10 * kGiB), IsOk("/runs: 10.0 GiB free"));
  EXPECT_THAT(judge_disk("/runs", "", kGiB / 2), IsWarning("/runs: 512.0 MiB free", "free some space"));
  EXPECT_THAT(judge_disk("/runs", "no file can be written", 0), IsFailed("/runs: no file can be written", "--output-dir"));
  const testing::TemporaryFolder folder;
  EXPECT_EQ(try_folder(folder.path()), "");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THAT(try_folder("/proc/self"), HasSubstr("no file can be written: "));
  const testing::FileSizeLimit limit(1 << 20);
  EXPECT_EQ(try_folder(folder.path()), "32 MiB cannot be written: File too large");
}

TEST(Checks, AllReduce) {
  EXPECT_THAT(judge_gloo({.latency = 5e-5, .seconds = 0.01}), IsOk("gloo: 16.0 MiB in 10.0 ms (1.68 GB/s), latency 50 µs"));
  EXPECT_THAT(judge_gloo({.latency = 0.006, .seconds = 0.01}), IsWarning("latency 6000 µs: slow", "other programs on these cores"));
  EXPECT_THAT(judge_gloo({.latency = 5e-5, .seconds = 0.2}), IsWarning("(0.08 GB/s), latency 50 µs: slow", "runtime.threads"));
  EXPECT_THAT(judge_gloo({.problem = "gloo cannot listen"}),
              IsFailed("two processes cannot train together: gloo cannot listen", "firewall"));
  EXPECT_THAT(judge_nccl({.latency = 2e-5, .seconds = 0.001}), IsOk("NCCL: 16.0 MiB in 1.0 ms (16.78 GB/s), latency 20 µs"));
  EXPECT_THAT(judge_nccl({.latency = 2e-5, .seconds = 0.01}), IsWarning("(1.68 GB/s), latency 20 µs: slow", "nvidia-smi topo -m"));
  EXPECT_THAT(judge_nccl({.problem = "NCCL cannot connect"}), IsFailed("NCCL does not work: NCCL cannot connect", "NCCL_DEBUG=INFO"));
}

}  // namespace
}  // namespace trainer::doctor
