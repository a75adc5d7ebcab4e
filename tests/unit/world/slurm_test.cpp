#include "launch/world/slurm.h"

#include <gmock/gmock.h>

#include <utility>

namespace trainer::world {
namespace {

TEST(Slurm, TasksOnNode) {
  EXPECT_EQ(tasks_on_node("2(x2),1", 0), 2);
  EXPECT_EQ(tasks_on_node("2(x2),1", 1), 2);
  EXPECT_EQ(tasks_on_node("2(x2),1", 2), 1);
  for (const char* bad : {"", "x", "2(x", "2(x2", "2(2)", "2,", "0", "-1"}) EXPECT_EQ(tasks_on_node(bad, 1), std::nullopt) << bad;
  EXPECT_EQ(tasks_on_node("2(x2),1", 3), std::nullopt);
}

using Names = std::vector<std::string>;

TEST(Slurm, FirstHost) {
  const auto first_host = [](std::string_view hosts) { return host_names(hosts, 1); };
  EXPECT_EQ(first_host("n[1-2,05-7],m3"), Names{"n1"});
  EXPECT_EQ(first_host("n[005-7,9]"), Names{"n005"});
  EXPECT_EQ(first_host("m3,n[1-2]"), Names{"m3"});
  EXPECT_EQ(first_host("login"), Names{"login"});
  EXPECT_EQ(first_host("rack[2-3]node[07]-ib,x"), Names{"rack2node07-ib"});
  for (const char* bad : {"", ",n1", "n[", "n[]", "n[-2]", "n[1-2"}) EXPECT_EQ(first_host(bad), Names()) << bad;
}

TEST(Slurm, HostNames) {
  EXPECT_EQ(host_names("n[1-2,05-7],m3", 100), (Names{"n1", "n2", "n05", "n06", "n07", "m3"}));
  EXPECT_EQ(host_names("n[9-11]", 100), (Names{"n9", "n10", "n11"}));
  EXPECT_EQ(host_names("r[0-1]n[08-09]-ib,x", 100), (Names{"r0n08-ib", "r0n09-ib", "r1n08-ib", "r1n09-ib", "x"}));
  EXPECT_EQ(host_names("127.0.0.[1-2]", 100), (Names{"127.0.0.1", "127.0.0.2"}));
  EXPECT_EQ(host_names("n[0-4000000000]", 3), (Names{"n0", "n1", "n2"}));
  for (const char* bad : {"n1,", "n1,,n2", "n[1,]", "n[1-x]", "n[1-2]m["}) EXPECT_EQ(host_names(bad, 100), Names()) << bad;
}

TEST(Slurm, HostsOfTasks) {
  const Names blocks = {"n1", "n1", "n1", "n2"};
  for (const char* distribution : {"", "block", "block:cyclic", "block,Pack"}) {
    EXPECT_EQ(hosts_of_tasks("n[1-2]", "3,1", distribution, 4), blocks) << distribution;
  }
  EXPECT_EQ(hosts_of_tasks("n1,n2,m", "2(x2),1", "", 5), (Names{"n1", "n1", "n2", "n2", "m"}));
  for (const char* other : {"cyclic", "cyclic:block", "plane", "arbitrary"}) EXPECT_EQ(hosts_of_tasks("n[1-2]", "3,1", other, 4), Names());
  // Variables that do not fit together.
  for (const char* counts : {"3,2", "3", "2(x2),1", "x"}) EXPECT_EQ(hosts_of_tasks("n[1-3]", counts, "", 4), Names()) << counts;
  EXPECT_EQ(hosts_of_tasks("n[1-", "3,1", "", 4), Names());
}

TEST(Slurm, TasksAndGpusOfANode) {
  EXPECT_EQ(too_few_gpus(4, 2),
            "Slurm started 4 tasks on this node but allocated 2 GPUs (SLURM_GPUS_ON_NODE), and each task needs its own GPU; set "
            "--ntasks-per-node=2 or --gpus-per-node=4, or runtime.device: cpu");
  EXPECT_EQ(idle_gpus(1, 4),
            "Slurm allocated 4 GPUs on this node (SLURM_GPUS_ON_NODE), but 3 of them stay idle, because each task uses one GPU; set "
            "--ntasks-per-node=4");
  EXPECT_THAT(too_few_gpus(2, 1),
              ::testing::StartsWith("Slurm started 2 tasks on this node but allocated 1 GPU (SLURM_GPUS_ON_NODE), and"));
  EXPECT_THAT(idle_gpus(1, 2), ::testing::HasSubstr("but 1 of them stays idle"));
  for (const auto& [num_tasks, num_gpus] : {std::pair(2, 2), {1, 4}, {4, 0}}) EXPECT_EQ(too_few_gpus(num_tasks, num_gpus), "");
  for (const auto& [num_tasks, num_gpus] : {std::pair(2, 2), {4, 2}, {4, 0}}) EXPECT_EQ(idle_gpus(num_tasks, num_gpus), "");
}

TEST(Slurm, PortsOfStepsAndOfNeighbouringJobsDiffer) {
  EXPECT_EQ(step_port(0, 0), 20000);
  EXPECT_EQ(step_port(209, 18), 32767);
  EXPECT_NE(step_port(7, 0), step_port(7, 1));
  EXPECT_NE(step_port(7, 0), step_port(8, 0));
  EXPECT_LE(step_port(~uint64_t{0}, 5), 32767);
}

}  // namespace
}  // namespace trainer::world
