#include <gmock/gmock.h>

#include "commands/doctor/judge.h"
#include "tests/testing/finding.h"

namespace trainer::doctor {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(JudgeHost, Processor) {
  const Cpus good{.instructions = "AVX512", .has_amx = true, .installed = 64, .allowed = 16, .quota = 8, .available = 4};
  EXPECT_THAT(judge_cpus(good),
              IsOk("AVX512 and AMX; 64 cores installed, 16 allowed by the affinity mask, 8 by the cgroup: training uses 4"));
  const Cpus small{.instructions = "AVX2", .installed = 1, .allowed = 1, .quota = {}, .available = 1};
  EXPECT_THAT(judge_cpus(small), IsOk("AVX2; 1 core installed: training uses 1"));
  const Cpus old{.instructions = "DEFAULT", .installed = 4, .allowed = 4, .quota = {}, .available = 4};
  EXPECT_THAT(judge_cpus(old), IsWarning("no AVX2; 4 cores installed: training uses 4", "train on a processor with AVX2"));
  const Cpus one{.instructions = "AVX2", .installed = 64, .allowed = 64, .quota = 1, .available = 1};
  EXPECT_THAT(judge_cpus(one), IsWarning("64 cores installed, 1 by the cgroup: training uses 1", "Slurm: --cpus-per-task"));
}

TEST(JudgeHost, Memory) {
  EXPECT_THAT(judge_memory({.total = 64 * kGiB, .available = 50 * kGiB, .limit = {}}), IsOk("64.0 GiB, 50.0 GiB available"));
  EXPECT_THAT(judge_memory({.total = 64 * kGiB, .available = 50 * kGiB, .limit = 8 * kGiB}), IsOk("; the cgroup allows 8.0 GiB"));
  EXPECT_THAT(judge_memory({.total = 64 * kGiB, .available = 50 * kGiB, .limit = kGiB}),
              IsWarning("; the cgroup allows 1.0 GiB", "at least 2 GiB for each rank (Slurm: --mem"));
  EXPECT_THAT(judge_memory({.total = 2 * kGiB, .available = kGiB / 2, .limit = {}}),
              IsWarning("512.0 MiB available", "end other programs"));
}

TEST(JudgeHost, SharedMemory) {
  EXPECT_THAT(judge_shared_memory(2 * kGiB, 8), IsOk("/dev/shm has 2.0 GiB"));
  EXPECT_THAT(judge_shared_memory(kGiB / 16, 1), IsOk("/dev/shm has 64.0 MiB, which is enough without several GPUs"));
  EXPECT_THAT(judge_shared_memory(kGiB / 16, 2), IsWarning("/dev/shm has 64.0 MiB, but NCCL may need 1 GiB", "--shm-size=1g"));
  EXPECT_THAT(judge_shared_memory({}, 0), IsOk("/dev/shm does not exist; only NCCL"));
  EXPECT_THAT(judge_shared_memory({}, 2), IsFailed("/dev/shm does not exist, but NCCL needs it", "mount a tmpfs"));
}

TEST(JudgeHost, Limits) {
  EXPECT_THAT(judge_open_files({}), IsOk("unlimited (ulimit -n)"));
  EXPECT_THAT(judge_open_files(1024), IsOk("1024 (ulimit -n)"));
  EXPECT_THAT(judge_open_files(1023), IsWarning("1023 (ulimit -n): too few for a run with many ranks", "ulimit -n 65536"));
  EXPECT_THAT(judge_open_files(255), IsFailed("255 (ulimit -n): too few for the sockets", "--ulimit nofile=65536"));
  EXPECT_THAT(judge_processes({}), IsOk("unlimited processes and threads"));
  EXPECT_THAT(judge_processes(1024), IsOk("1024 processes"));
  EXPECT_THAT(judge_processes(500),
              IsWarning("500 processes and threads (ulimit -u and the cgroup): possibly too few for ranks", "--pids-limit"));
  EXPECT_THAT(judge_processes(63), IsFailed("63 processes and threads (ulimit -u and the cgroup): too few", "ulimit -u"));
  EXPECT_THAT(judge_locked_memory({}, true), IsOk("unlimited (ulimit -l)"));
  EXPECT_THAT(judge_locked_memory(1 << 16, false), IsOk("64.0 KiB (ulimit -l); only InfiniBand needs more"));
  EXPECT_THAT(judge_locked_memory(1 << 16, true), IsWarning("64.0 KiB (ulimit -l): NCCL cannot register", "--ulimit memlock=-1"));
}

TEST(JudgeHost, Launcher) {
  const Launch plain{.description = "one process", .problem = "", .slurm_job = "7", .is_container = true, .slurm_gpus = 2};
  EXPECT_THAT(judge_launch(plain, 2), IsOk("one process; Slurm job 7; in a container"));
  EXPECT_THAT(judge_launch(plain, 0),
              IsWarning("Slurm has allocated 2 GPUs on this node, but this program finds none", "apptainer's --nv"));
  EXPECT_THAT(judge_launch(
                  {.description = "", .problem = "RANK=1 without WORLD_SIZE", .slurm_job = "", .is_container = false, .slurm_gpus = {}}, 0),
              IsFailed("RANK=1 without WORLD_SIZE", "unset these environment variables"));
}

TEST(JudgeHost, Disk) {
  EXPECT_THAT(judge_disk({.folder = "/runs", .problem = "", .missing = "locks (flock: x)", .free = 10 * kGiB, .bytes_per_second = 2e8}),
              IsWarning("written at 200 MB/s, without locks (flock: x)", "Lustre: flock"));
  EXPECT_THAT(judge_disk({.folder = "/runs", .problem = "", .missing = "", .free = 10 * kGiB, .bytes_per_second = 2e8}),
              IsOk("/runs: 10.0 GiB free, written at 200 MB/s"));
  EXPECT_THAT(judge_disk({.folder = "/runs", .problem = "", .missing = "", .free = kGiB / 2, .bytes_per_second = 2e8}),
              IsWarning("512.0 MiB free", "free some space"));
  EXPECT_THAT(judge_disk({.folder = "/runs", .problem = "", .missing = "", .free = 10 * kGiB, .bytes_per_second = 1e7}),
              IsWarning("written at 10 MB/s", "a faster disk"));
  EXPECT_THAT(judge_disk({.folder = "/runs", .problem = "no file can be written", .missing = "", .free = 0, .bytes_per_second = 0}),
              IsFailed("no file can be written", "--output-dir"));
}

TEST(JudgeHost, Images) {
  EXPECT_THAT(judge_images(""), IsOk("a JPEG file was written and read"));
  EXPECT_THAT(judge_images("no OpenCV"), IsWarning("data sets of image files cannot be used: no OpenCV", "unpack the bundle again"));
}

}  // namespace
}  // namespace trainer::doctor
