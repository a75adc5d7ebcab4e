#include "world/slurm.h"

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

TEST(Slurm, FirstHost) {
  EXPECT_EQ(first_host("n[1-2,05-7],m3"), "n1");
  EXPECT_EQ(first_host("n[005-7,9]"), "n005");
  EXPECT_EQ(first_host("m3,n[1-2]"), "m3");
  EXPECT_EQ(first_host("login"), "login");
  EXPECT_EQ(first_host("rack[2-3]node[07]-ib,x"), "rack2node07-ib");
  for (const char* bad : {"", ",n1", "n[", "n[]", "n[-2]", "n[1-2"}) EXPECT_EQ(first_host(bad), "") << bad;
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
