#include "launch/world/host_resources.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <map>

namespace trainer::world {
namespace {

TEST(HostResources, AffinityAndSlurmLimitTheCores) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before) && CPU_COUNT(&one) == 0) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(available_cpus(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_LE(available_cpus(), CPU_COUNT(&before));

  setenv("SLURM_CPUS_PER_TASK", "1", 1);
  EXPECT_EQ(available_cpus(), 1);
  setenv("SLURM_CPUS_PER_TASK", "many", 1);
  EXPECT_GE(available_cpus(), 1);
  unsetenv("SLURM_CPUS_PER_TASK");
}

TEST(HostResources, TheUserChoosesTheComputeThreads) {
  std::map<std::string, std::string> variables;
  const auto choose = [&variables] {
    return default_compute_threads(1, [&variables](const std::string& name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  };
  const auto by_cores = choose();
  EXPECT_EQ(by_cores.count, available_cpus());
  EXPECT_TRUE(by_cores.description.ends_with("this process's share of the cores that the run may use on this host"))
      << by_cores.description;

  variables = {{"OMP_NUM_THREADS", "7"}};
  EXPECT_EQ(choose().count, 7);
  EXPECT_EQ(choose().description, "7 compute threads: OMP_NUM_THREADS=7");
  variables = {{"OMP_NUM_THREADS", "3,2"}};
  EXPECT_EQ(choose().count, 3);
  variables = {{"OMP_NUM_THREADS", "many"}};
  EXPECT_EQ(choose().description, by_cores.description);

  // torchrun sets OMP_NUM_THREADS only for several processes per host, and only if the user has not set it.
  variables = {{"OMP_NUM_THREADS", "1"}, {"TORCHELASTIC_RUN_ID", "none"}, {"LOCAL_WORLD_SIZE", "2"}};
  EXPECT_EQ(choose().count, by_cores.count);
  EXPECT_TRUE(choose().description.ends_with(
      "; OMP_NUM_THREADS=1 is ignored, because torchrun sets it by default: set runtime.threads=1 to use one thread"));
  variables["LOCAL_WORLD_SIZE"] = "1";
  EXPECT_EQ(choose().count, 1);
  variables = {{"OMP_NUM_THREADS", "5"}, {"TORCHELASTIC_RUN_ID", "none"}, {"LOCAL_WORLD_SIZE", "2"}};
  EXPECT_EQ(choose().count, 5);
}

TEST(HostResources, SharedMemoryOfContainers) {
  EXPECT_EQ(describe_small_shared_memory("/absent"), "");
  EXPECT_EQ(describe_small_shared_memory("/"), "") << "/ has more than 1 GiB";
  // A full file system.
  EXPECT_EQ(describe_small_shared_memory("/sys"),
            "/sys has only 0 MiB, but NCCL may need 1 GiB of it for communication between GPUs of this host: start the container with "
            "--ipc=host or --shm-size=1g");
}

TEST(HostResources, Colour) {
  setenv("TERM", "xterm", 1);
  unsetenv("NO_COLOR");
  EXPECT_TRUE(wants_colour());
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(wants_colour());
  unsetenv("NO_COLOR");
  for (const auto* name : {"dumb", ""}) {
    setenv("TERM", name, 1);
    EXPECT_FALSE(wants_colour()) << name;
  }
}

}  // namespace
}  // namespace trainer::world
