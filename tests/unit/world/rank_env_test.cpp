#include "launch/world/rank_env.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "tests/testing/launchers.h"

namespace trainer::world {
namespace {

struct Found {
  const char* name;
  RankFlags flags;
  Variables variables;
  int rank, world_size, local_rank, local_world_size;
  const char* master_addr;
  int master_port;
  const char* description;
};

const std::vector<Found> kFound = {
    {"one process", {}, {}, 0, 1, 0, 1, "", 0, "one process: no launcher has given it a rank"},
    {"empty variables count as unset",
     {},
     {{"RANK", ""}, {"WORLD_SIZE", ""}},
     0,
     1,
     0,
     1,
     "",
     0,
     "one process: no launcher has given it a rank"},
    {"torchrun", {}, kTorchrun, 1, 4, 1, 2, "127.0.0.1", 29500, "rank 1 of 4 (local rank 1 of 2), from RANK and WORLD_SIZE"},
    {"torchrun in a batch script",
     {},
     kTorchrun + kBatchShell,
     1,
     4,
     1,
     2,
     "127.0.0.1",
     29500,
     "rank 1 of 4 (local rank 1 of 2), from RANK and WORLD_SIZE; ignored: SLURM_PROCID=0 of SLURM_NTASKS=4 (not inside an srun step)"},
    {"torchrun in an srun step",
     {},
     kTorchrun + kStep,
     1,
     4,
     1,
     2,
     "127.0.0.1",
     29500,
     "rank 1 of 4 (local rank 1 of 2), from RANK and WORLD_SIZE; ignored: SLURM_PROCID=2 of SLURM_STEP_NUM_TASKS=3"},
    {"torch.distributed.launch",
     {.local_rank = 1},
     {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "h0"}, {"MASTER_PORT", "1"}},
     3,
     4,
     1,
     2,
     "h0",
     1,
     "rank 3 of 4 (local rank 1 of 2), from RANK and WORLD_SIZE"},
    {"torch.distributed.launch, set twice",
     {.local_rank = 1},
     kTorchrun,
     1,
     4,
     1,
     2,
     "127.0.0.1",
     29500,
     "rank 1 of 4 (local rank 1 of 2), from RANK and WORLD_SIZE"},
    {"no LOCAL_WORLD_SIZE",
     {},
     Variables{{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}} + kMaster,
     3,
     4,
     1,
     2,
     "h0",
     4000,
     "rank 3 of 4 (local rank 1 of at least 2: LOCAL_WORLD_SIZE is not set), from RANK and WORLD_SIZE"},
    {"Kubernetes PyTorchJob",
     {},
     Variables{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}},
     1,
     2,
     0,
     1,
     "job-master-0",
     23456,
     "rank 1 of 2 (local rank 0 of 1: LOCAL_RANK is not set), from RANK and WORLD_SIZE"},
    {"Open MPI",
     {},
     kOpenMpi + kMaster,
     3,
     4,
     0,
     1,
     "h0",
     4000,
     "rank 3 of 4 (local rank 0 of 1), from OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"},
    {"Open MPI in an allocation",
     {},
     kOpenMpi + kStepOfDaemons + kMaster,
     3,
     4,
     0,
     1,
     "h0",
     4000,
     "rank 3 of 4 (local rank 0 of 1), from OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE; ignored: SLURM_PROCID=1 of "
     "SLURM_STEP_NUM_TASKS=2"},
    {"MPICH", {}, kMpich, 2, 4, 2, 3, "", 0, "rank 2 of 4 (local rank 2 of 3), from PMI_RANK and PMI_SIZE"},
    {"MPICH in an allocation",
     {},
     kMpich + kStepOfDaemons,
     2,
     4,
     2,
     3,
     "",
     0,
     "rank 2 of 4 (local rank 2 of 3), from PMI_RANK and PMI_SIZE; ignored: SLURM_PROCID=1 of SLURM_STEP_NUM_TASKS=2"},
    {"srun step",
     {},
     kStep,
     2,
     3,
     0,
     1,
     "n1",
     20061,
     "rank 2 of 3 (local rank 0 of 1), from SLURM_PROCID and SLURM_STEP_NUM_TASKS; MASTER_ADDR=n1 is the first of SLURM_STEP_NODELIST; "
     "MASTER_PORT=20061 is computed from SLURM_JOB_ID and SLURM_STEP_ID"},
    {"srun step with a master",
     {},
     kStep + kMaster,
     2,
     3,
     0,
     1,
     "h0",
     4000,
     "rank 2 of 3 (local rank 0 of 1), from SLURM_PROCID and SLURM_STEP_NUM_TASKS"},
    {"srun step of one task",
     {},
     kStep + Variables{{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "1"}},
     0,
     1,
     0,
     1,
     "",
     0,
     "rank 0 of 1 (local rank 0 of 1), from SLURM_PROCID and SLURM_STEP_NUM_TASKS"},
    {"srun step without its own counts",
     {},
     Variables{{"SLURM_JOB_ID", "1"},
               {"SLURM_STEP_ID", "7"},
               {"SLURM_PROCID", "3"},
               {"SLURM_LOCALID", "1"},
               {"SLURM_NODEID", "1"},
               {"SLURM_NTASKS", "4"},
               {"SLURM_TASKS_PER_NODE", "2(x2)"},
               {"SLURM_JOB_NODELIST", "gpu[08-09]"},
               {"MASTER_PORT", "5"}},
     3,
     4,
     1,
     2,
     "gpu08",
     5,
     "rank 3 of 4 (local rank 1 of 2), from SLURM_PROCID and SLURM_NTASKS; MASTER_ADDR=gpu08 is the first of SLURM_JOB_NODELIST"},
    {"srun --mpi=pmi2",
     {},
     kStep + kMaster + Variables{{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"PMI_FD", "11"}},
     2,
     3,
     0,
     1,
     "h0",
     4000,
     "rank 2 of 3 (local rank 0 of 1), from SLURM_PROCID and SLURM_STEP_NUM_TASKS; ignored: PMI_RANK=2 of PMI_SIZE=3"},
    {"batch script without a step",
     {},
     kBatchShell,
     0,
     1,
     0,
     1,
     "",
     0,
     "one process: no launcher has given it a rank; ignored: SLURM_PROCID=0 of SLURM_NTASKS=4 (not inside an srun step)"},
    {"batch script with a reserved step number",
     {},
     kBatchShell + Variables{{"SLURM_STEP_ID", "4294967291"}},
     0,
     1,
     0,
     1,
     "",
     0,
     "one process: no launcher has given it a rank; ignored: SLURM_PROCID=0 of SLURM_NTASKS=4 (not inside an srun step)"},
    {"flags",
     {.rank = 1, .world_size = 2, .local_rank = 0},
     kMaster,
     1,
     2,
     0,
     1,
     "h0",
     4000,
     "rank 1 of 2 (local rank 0 of at least 1: LOCAL_WORLD_SIZE is not set), from --rank and --world-size"},
    {"flags and an equal RANK",
     {.rank = 1, .world_size = 4},
     kTorchrun,
     1,
     4,
     1,
     2,
     "127.0.0.1",
     29500,
     "rank 1 of 4 (local rank 1 of 2), from --rank and --world-size"},
    {"flags in a step",
     {.rank = 0, .world_size = 2},
     kStep,
     0,
     2,
     0,
     1,
     "",
     0,
     "rank 0 of 2 (local rank 0 of 1: --local-rank is not set), from --rank and --world-size; ignored: SLURM_PROCID=2 of "
     "SLURM_STEP_NUM_TASKS=3"},
    {"an init_method beside RANK",
     {.init_method = "tcp://h1:2"},
     kTorchrun + Variables{{"MASTER_PORT", "unused"}},
     1,
     4,
     1,
     2,
     "",
     0,
     "rank 1 of 4 (local rank 1 of 2), from RANK and WORLD_SIZE"},
};

TEST(RankEnv, IsFound) {
  for (const auto& row : kFound) {
    SCOPED_TRACE(row.name);
    const auto rank_env = find_rank_env(row.flags, of(row.variables));
    EXPECT_EQ(rank_env.rank, row.rank);
    EXPECT_EQ(rank_env.world_size, row.world_size);
    EXPECT_EQ(rank_env.local_rank, row.local_rank);
    EXPECT_EQ(rank_env.local_world_size, row.local_world_size);
    EXPECT_EQ(rank_env.master_addr, row.master_addr);
    EXPECT_EQ(rank_env.master_port, row.master_port);
    EXPECT_EQ(rank_env.description, row.description);
  }
}

TEST(RankEnv, StoreAndRestartCountAreReadFromTheLauncherThatSetRank) {
  auto variables = kTorchrun + Variables{{"TORCHELASTIC_RESTART_COUNT", "2"}, {"GLOO_SOCKET_IFNAME", "eth1"}};
  auto rank_env = find_rank_env({}, of(variables));
  EXPECT_TRUE(rank_env.launcher_serves_store);
  EXPECT_EQ(rank_env.restart_attempt, 2);
  EXPECT_EQ(rank_env.gloo_interface, "eth1");
  for (const char* other : {"true", "1", "False", ""}) {
    variables["TORCHELASTIC_USE_AGENT_STORE"] = other;
    EXPECT_FALSE(find_rank_env({}, of(variables)).launcher_serves_store) << other;
  }
  variables = kStep + Variables{{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", "2"}};
  rank_env = find_rank_env({}, of(variables));
  EXPECT_FALSE(rank_env.launcher_serves_store);
  EXPECT_EQ(rank_env.restart_attempt, 0);
}

TEST(RankEnv, ErrorFileIsReadOnlyUnderTorchrun) {
  const Variables file = {{"TORCHELASTIC_ERROR_FILE", "/tmp/error.json"}};
  EXPECT_EQ(find_rank_env({}, of(kTorchrun + file)).error_file, "/tmp/error.json");
  EXPECT_EQ(find_rank_env({}, of(kStep + file)).error_file, "");
}

TEST(RankEnv, GpusOfASlurmStep) {
  const auto gpus = [](const Variables& more) { return find_rank_env({}, of(kStep + more)).slurm_gpus; };
  EXPECT_EQ(gpus({}), 0);
  EXPECT_EQ(gpus({{"SLURM_GPUS_ON_NODE", "2"}}), 2);
  EXPECT_EQ(gpus({{"SLURM_GPUS_ON_NODE", "2"}, {"SLURMD_TRES_BIND", "gpu:per_task:1"}}), std::nullopt);
  EXPECT_EQ(find_rank_env({}, of(kTorchrun + Variables{{"SLURM_GPUS_ON_NODE", "2"}})).slurm_gpus, std::nullopt);
}

TEST(RankEnv, HostsOfTheRanksOfASlurmStep) {
  const auto hosts = [](const Variables& more) { return find_rank_env({}, of(kStep + more)).slurm_hosts; };
  const std::vector<std::string> none;
  EXPECT_EQ(hosts({}), (std::vector<std::string>{"n1", "n1", "n2"}));
  EXPECT_EQ(hosts({{"SLURM_DISTRIBUTION", "block"}}), (std::vector<std::string>{"n1", "n1", "n2"}));
  EXPECT_EQ(hosts({{"SLURM_DISTRIBUTION", "cyclic"}}), none);
  // This rank is not on the node on which a distribution by blocks would place it.
  EXPECT_EQ(hosts({{"SLURM_PROCID", "1"}}), none);
  EXPECT_EQ(find_rank_env({}, of(kTorchrun)).slurm_hosts, none);
}

TEST(RankEnv, TheSourceOfThePort) {
  EXPECT_EQ(find_rank_env({}, of(kStep)).port_source, "computed from SLURM_JOB_ID=1 and SLURM_STEP_ID=0");
  EXPECT_EQ(find_rank_env({}, of(kStep + kMaster)).port_source, "MASTER_PORT");
}

TEST(RankEnv, ProcessEnvironment) {
  setenv("TRAINER_PLACE_TEST", "x", 1);
  EXPECT_EQ(process_environment()("TRAINER_PLACE_TEST"), "x");
  unsetenv("TRAINER_PLACE_TEST");
  EXPECT_EQ(process_environment()("TRAINER_PLACE_TEST"), std::nullopt);
}

TEST(RankEnv, TheSecretIsThatOfTheLauncher) {
  using Source = RunSecret::Source;
  struct Row {
    Variables variables;
    Source source;
    const char* text;
  };
  const Variables token = {{"TRAINER_LAUNCHER_TOKEN", "a1b2"}};
  const Variables run_id = {{"TORCHELASTIC_RUN_ID", "my_run"}};
  const std::vector<Row> rows = {
      {kTorchrun, Source::kNone, ""},
      {kTorchrun + Variables{{"TORCHELASTIC_RUN_ID", "none"}}, Source::kNone, ""},
      {kTorchrun + run_id, Source::kTorchrun, "my_run"},
      {kTorchrun + token, Source::kLauncher, "a1b2"},
      {kStep, Source::kSlurm, "1"},
      {kTorchrun + kStep, Source::kNone, ""},
      {kOpenMpi + run_id, Source::kNone, ""},
      {{}, Source::kNone, ""},
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto secret = find_rank_env({}, of(rows[i].variables)).secret;
    EXPECT_EQ(secret.source, rows[i].source) << i;
    EXPECT_EQ(secret.text, rows[i].text) << i;
  }
}

}  // namespace
}  // namespace trainer::world
