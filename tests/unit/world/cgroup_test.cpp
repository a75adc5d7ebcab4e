#include <gtest/gtest.h>

#include <fstream>

#include "launch/world/host_resources.h"
#include "tests/testing/temporary_folder.h"

namespace trainer::world {
namespace {

void write(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

TEST(Cgroup, TheLeastLimitOfAllGroupsAboveCounts) {
  const testing::TemporaryFolder folder;
  const CgroupFiles files{.groups = folder.path() / "cgroup", .mount = folder.path() / "mount"};
  write(files.groups, "12:cpu:/old\n0::/slurm/job_7/step_0\n");
  write(files.mount / "slurm/job_7/step_0/cpu.max", "max 100000\n");
  write(files.mount / "slurm/job_7/cpu.max", "350000 100000\n");
  write(files.mount / "slurm/cpu.max", "800000 100000\n");
  write(files.mount / "slurm/job_7/step_0/memory.max", "max\n");
  write(files.mount / "slurm/job_7/memory.max", "4294967296\n");
  write(files.mount / "memory.max", "8589934592\n");
  write(files.mount / "slurm/job_7/step_0/pids.max", "500\n");
  EXPECT_EQ(cgroup_cpus(files), 3);
  EXPECT_EQ(cgroup_memory(files), uint64_t{4} << 30);
  EXPECT_EQ(cgroup_processes(files), 500);
}

TEST(Cgroup, Version1) {
  const testing::TemporaryFolder folder;
  const CgroupFiles files{.groups = folder.path() / "cgroup", .mount = folder.path() / "mount"};
  EXPECT_EQ(cgroup_cpus(files), std::nullopt);
  EXPECT_EQ(cgroup_memory(files), std::nullopt);
  // Files as seen in a container: the mount shows the container's own group, but the path is that of the group on the host.
  write(files.groups, "9:name=systemd:/\n8:pids:/docker/f9\n4:memory:/docker/f9\n2:cpuacct,cpu:/docker/f9\n0::/\n");
  write(files.mount / "cpu/cpu.cfs_quota_us", "50000\n");
  write(files.mount / "cpu/cpu.cfs_period_us", "100000\n");
  // The value for "no limit".
  write(files.mount / "memory/memory.limit_in_bytes", "9223372036854771712\n");
  write(files.mount / "pids/pids.max", "64\n");
  EXPECT_EQ(cgroup_cpus(files), 1);
  EXPECT_EQ(cgroup_memory(files), std::nullopt);
  EXPECT_EQ(cgroup_processes(files), 64);
}

TEST(Cgroup, Version1InGroupsBelowTheMount) {
  const testing::TemporaryFolder folder;
  const CgroupFiles files{.groups = folder.path() / "cgroup", .mount = folder.path() / "mount"};
  write(files.groups, "8:pids:/\n4:memory:/slurm/job_7/step_0\n2:cpuacct,cpu:/slurm/job_7\n1:cpuset:/other\n");
  write(files.mount / "cpu/cpu.cfs_quota_us", "-1\n");
  write(files.mount / "cpu/cpu.cfs_period_us", "100000\n");
  write(files.mount / "cpu/slurm/job_7/cpu.cfs_quota_us", "300000\n");
  write(files.mount / "cpu/slurm/job_7/cpu.cfs_period_us", "100000\n");
  write(files.mount / "cpu/other/cpu.cfs_quota_us", "100000\n");
  write(files.mount / "cpu/other/cpu.cfs_period_us", "100000\n");
  write(files.mount / "memory/slurm/job_7/memory.limit_in_bytes", "4294967296\n");
  write(files.mount / "pids/slurm/pids.max", "64\n");
  EXPECT_EQ(cgroup_cpus(files), 3);
  EXPECT_EQ(cgroup_memory(files), uint64_t{4} << 30);
  EXPECT_EQ(cgroup_processes(files), std::nullopt);
}

}  // namespace
}  // namespace trainer::world
