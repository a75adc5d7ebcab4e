#include "world/place.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"

namespace trainer::world {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Environment of(const Variables& variables) {
  return [&variables](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

Variables operator+(Variables one, const Variables& other) {
  for (const auto& [name, value] : other) one[name] = value;
  return one;
}

// What the launchers really set (torchrun 2.11, Slurm 22.05, Open MPI 4.1, MPICH 4.0), as far as it is read.
const Variables kTorchrun = {{"RANK", "1"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                             {"TORCHELASTIC_RESTART_COUNT", "0"}};
// sbatch -N2 -n4, in the batch script: no step.
const Variables kBatchShell = {{"SLURM_JOB_ID", "3"},        {"SLURM_PROCID", "0"},           {"SLURM_LOCALID", "0"},
                               {"SLURM_NODEID", "0"},        {"SLURM_NTASKS", "4"},           {"SLURM_TASKS_PER_NODE", "3,1"},
                               {"SLURM_NODELIST", "n[1-2]"}, {"SLURM_JOB_NODELIST", "n[1-2]"}};
// srun -N2 -n3, the last task.
const Variables kStep = {{"SLURM_JOB_ID", "1"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "2"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_NTASKS", "3"},
                         {"SLURM_STEP_NUM_TASKS", "3"},
                         {"SLURM_TASKS_PER_NODE", "2,1"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
                         {"SLURM_JOB_NODELIST", "n[1-2]"},
                         {"SLURM_STEP_NODELIST", "n[1-2]"}};
const Variables kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
const Variables kMpich = {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "3"}, {"PMI_FD", "9"}};
// Of the srun that started mpirun's daemons, one on each of the two nodes.
const Variables kStepOfDaemons =
    kStep + Variables{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}};
const Variables kMaster = {{"MASTER_ADDR", "h0"}, {"MASTER_PORT", "4000"}};

struct Found {
  const char* name;
  PlaceFlags flags;
  Variables variables;
  int rank, world_size, local_rank, local_world_size;
  const char* master_addr;
  int master_port;
  const char* decision;
};

const std::vector<Found> kFound = {
    {"alone", {}, {}, 0, 1, 0, 1, "", 0, "one process: no launcher's variables are set"},
    {"set to nothing is not set",
     {},
     {{"RANK", ""}, {"WORLD_SIZE", ""}},
     0,
     1,
     0,
     1,
     "",
     0,
     "one process: no launcher's variables are set"},
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
     "rank 1 of 4 (local rank 1 of 2), from RANK and WORLD_SIZE; passed over: SLURM_PROCID=0 of SLURM_NTASKS=4 (not inside an srun step)"},
    {"torchrun in an srun step",
     {},
     kTorchrun + kStep,
     1,
     4,
     1,
     2,
     "127.0.0.1",
     29500,
     "rank 1 of 4 (local rank 1 of 2), from RANK and WORLD_SIZE; passed over: SLURM_PROCID=2 of SLURM_STEP_NUM_TASKS=3"},
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
    {"torch.distributed.launch, said twice",
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
     "rank 3 of 4 (local rank 0 of 1), from OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE; passed over: SLURM_PROCID=1 of "
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
     "rank 2 of 4 (local rank 2 of 3), from PMI_RANK and PMI_SIZE; passed over: SLURM_PROCID=1 of SLURM_STEP_NUM_TASKS=2"},
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
     "rank 2 of 3 (local rank 0 of 1), from SLURM_PROCID and SLURM_STEP_NUM_TASKS; passed over: PMI_RANK=2 of PMI_SIZE=3"},
    {"batch script without a step",
     {},
     kBatchShell,
     0,
     1,
     0,
     1,
     "",
     0,
     "one process: no launcher's variables are set; passed over: SLURM_PROCID=0 of SLURM_NTASKS=4 (not inside an srun step)"},
    {"batch script, its step number reserved",
     {},
     kBatchShell + Variables{{"SLURM_STEP_ID", "4294967291"}},
     0,
     1,
     0,
     1,
     "",
     0,
     "one process: no launcher's variables are set; passed over: SLURM_PROCID=0 of SLURM_NTASKS=4 (not inside an srun step)"},
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
    {"flags beside an equal RANK",
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
     "rank 0 of 2 (local rank 0 of 1: --local-rank is not set), from --rank and --world-size; passed over: SLURM_PROCID=2 of "
     "SLURM_STEP_NUM_TASKS=3"},
    {"flags in the URL",
     {.init_method = "file:///x?rank=1&world_size=2"},
     {},
     1,
     2,
     0,
     1,
     "",
     0,
     "rank 1 of 2 (local rank 0 of 1: --local-rank is not set), from rank of --init-method and world_size of --init-method"},
    {"a meeting point beside RANK",
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

TEST(Place, IsFound) {
  for (const auto& row : kFound) {
    SCOPED_TRACE(row.name);
    const auto place = find_place(row.flags, of(row.variables));
    EXPECT_EQ(place.rank, row.rank);
    EXPECT_EQ(place.world_size, row.world_size);
    EXPECT_EQ(place.local_rank, row.local_rank);
    EXPECT_EQ(place.local_world_size, row.local_world_size);
    EXPECT_EQ(place.master_addr, row.master_addr);
    EXPECT_EQ(place.master_port, row.master_port);
    EXPECT_EQ(place.decision, row.decision);
  }
}

struct Refused {
  PlaceFlags flags;
  Variables variables;
  const char* error;
};

const std::vector<Refused> kRefused = {
    {{}, kTorchrun + Variables{{"RANK", "4"}}, "RANK=4 of WORLD_SIZE=4: ranks count from 0, so the last one is 3"},
    {{}, {{"RANK", "1"}}, "RANK=1 without WORLD_SIZE: set both, or neither"},
    {{}, {{"WORLD_SIZE", "2"}}, "WORLD_SIZE=2 without RANK: set both, or neither"},
    {{}, kTorchrun + Variables{{"RANK", "one"}}, "RANK=one: expected a whole number of at least 0"},
    {{}, kTorchrun + Variables{{"RANK", "1.5"}}, "RANK=1.5: expected a whole number of at least 0"},
    {{}, kTorchrun + Variables{{"RANK", "-1"}}, "RANK=-1: expected a whole number of at least 0"},
    {{}, kTorchrun + Variables{{"RANK", "99999999999"}}, "RANK=99999999999: expected a whole number of at least 0"},
    {{}, kTorchrun + Variables{{"WORLD_SIZE", "0"}}, "WORLD_SIZE=0: expected a whole number of at least 1"},
    {{}, kTorchrun + Variables{{"MASTER_PORT", "http"}}, "MASTER_PORT=http: expected a whole number from 1 to 65535"},
    {{}, kTorchrun + Variables{{"MASTER_PORT", "0"}}, "MASTER_PORT=0: expected a whole number from 1 to 65535"},
    {{}, kTorchrun + Variables{{"MASTER_PORT", "65536"}}, "MASTER_PORT=65536: expected a whole number from 1 to 65535"},
    {{}, kTorchrun + Variables{{"LOCAL_RANK", "2"}}, "LOCAL_RANK=2 of LOCAL_WORLD_SIZE=2: ranks count from 0, so the last one is 1"},
    {{}, kTorchrun + Variables{{"LOCAL_RANK", "4"}, {"LOCAL_WORLD_SIZE", ""}}, "LOCAL_RANK=4 of WORLD_SIZE=4"},
    {{}, kTorchrun + Variables{{"LOCAL_RANK", ""}}, "LOCAL_WORLD_SIZE=2 without LOCAL_RANK: set both, or neither"},
    {{}, kTorchrun + Variables{{"LOCAL_WORLD_SIZE", "8"}}, "LOCAL_WORLD_SIZE=8 is more than WORLD_SIZE=4"},
    {{}, kTorchrun + Variables{{"TORCHELASTIC_RESTART_COUNT", "x"}}, "TORCHELASTIC_RESTART_COUNT=x: expected a whole number"},
    {{.rank = 1, .world_size = 4}, kTorchrun + Variables{{"RANK", "0"}}, "--rank 1 contradicts RANK=0 of the environment"},
    {{.rank = 1, .world_size = 2}, kTorchrun, "--world-size 2 contradicts WORLD_SIZE=4 of the environment"},
    {{.local_rank = 0}, kTorchrun, "--local-rank 0 contradicts LOCAL_RANK=1 of the environment"},
    {{.rank = 1, .world_size = 4, .local_rank = 0}, kTorchrun, "--local-rank 0 contradicts LOCAL_RANK=1 of the environment"},
    {{.init_method = "tcp://h:1?rank=0&world_size=4"}, kTorchrun, "rank=0 of --init-method contradicts RANK=1 of the environment"},
    {{.rank = 1}, kTorchrun, "--rank 1 without --world-size: set both, or neither"},
    {{.world_size = 2}, {}, "--world-size 2 without --rank: set both, or neither"},
    {{.rank = 2, .world_size = 2}, {}, "--rank 2 of --world-size 2: ranks count from 0"},
    {{.rank = -1, .world_size = 2}, {}, "--rank -1: expected a whole number of at least 0"},
    {{.rank = 0, .world_size = 0}, {}, "--world-size 0: expected a whole number of at least 1"},
    {{.local_rank = 0}, {}, "--local-rank 0 without --rank and --world-size, or RANK and WORLD_SIZE"},
    {{.local_rank = 0}, kStep, "--local-rank 0 without --rank and --world-size, or RANK and WORLD_SIZE"},
    {{.init_method = "tcp://h:1"}, {}, "--init-method tcp://h:1 without --rank and --world-size"},
    {{.init_method = "tcp://h:1?rank=0"}, {}, "rank=0 of --init-method without world_size of --init-method"},
    {{.rank = 0, .init_method = "tcp://h:1?rank=0&world_size=2"}, {}, "give rank and world size in one of the two places"},
    {{.init_method = "tcp://h:1?rank=x&world_size=2"}, {}, "rank=x of --init-method: expected a whole number of at least 0"},
    {{.init_method = "tcp://h:1?use_libuv=0"}, {}, "--init-method tcp://h:1?use_libuv=0: expected rank=R&world_size=W"},
    {{.init_method = "tcp://h:1?rank=0&rank=1"}, {}, "--init-method tcp://h:1?rank=0&rank=1: expected rank=R&world_size=W"},
    {{}, {{"OMPI_COMM_WORLD_RANK", "0"}}, "OMPI_COMM_WORLD_RANK=0 without OMPI_COMM_WORLD_SIZE"},
    {{}, {{"PMI_SIZE", "2"}}, "PMI_SIZE=2 without PMI_RANK"},
    {{}, kMpich + Variables{{"PMI_RANK", "4"}}, "PMI_RANK=4 of PMI_SIZE=4"},
    {{}, {{"SLURM_STEP_ID", "0"}}, "SLURM_STEP_ID is set, but SLURM_PROCID and SLURM_NTASKS are not"},
    {{}, kStep + Variables{{"SLURM_PROCID", ""}}, "SLURM_STEP_NUM_TASKS=3 without SLURM_PROCID"},
    {{},
     kStep + Variables{{"SLURM_LOCALID", "1"}},
     "SLURM_LOCALID=1 of SLURM_STEP_TASKS_PER_NODE=2,1: ranks count from 0, so the last one is 0"},
    {{}, kStep + Variables{{"SLURM_NODEID", "2"}}, "SLURM_STEP_TASKS_PER_NODE=2,1 says nothing of SLURM_NODEID=2"},
    {{}, kStep + Variables{{"SLURM_STEP_NODELIST", "n[1-"}}, "SLURM_STEP_NODELIST=n[1-: expected host names"},
};

TEST(Place, IsRefused) {
  for (const auto& row : kRefused) {
    SCOPED_TRACE(row.error);
    try {
      find_place(row.flags, of(row.variables));
      ADD_FAILURE() << "not refused";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(row.error));
    }
  }
}

TEST(Place, StoreAndRestartsBelongToTheLauncherThatSetRank) {
  auto variables = kTorchrun + Variables{{"TORCHELASTIC_RESTART_COUNT", "2"}, {"GLOO_SOCKET_IFNAME", "eth1"}};
  auto place = find_place({}, of(variables));
  EXPECT_TRUE(place.launcher_serves_store);
  EXPECT_EQ(place.restart_attempt, 2);
  EXPECT_EQ(place.gloo_interface, "eth1");
  for (const char* other : {"true", "1", "False", ""}) {
    variables["TORCHELASTIC_USE_AGENT_STORE"] = other;
    EXPECT_FALSE(find_place({}, of(variables)).launcher_serves_store) << other;
  }
  variables = kStep + Variables{{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", "2"}};
  place = find_place({}, of(variables));
  EXPECT_FALSE(place.launcher_serves_store);
  EXPECT_EQ(place.restart_attempt, 0);
}

TEST(Place, ErrorFileBelongsToTorchrun) {
  const Variables file = {{"TORCHELASTIC_ERROR_FILE", "/tmp/error.json"}};
  EXPECT_EQ(find_place({}, of(kTorchrun + file)).error_file, "/tmp/error.json");
  EXPECT_EQ(find_place({}, of(kStep + file)).error_file, "");
}

TEST(Place, GpusOfASlurmStep) {
  const auto gpus = [](const Variables& more) { return find_place({}, of(kStep + more)).slurm_gpus; };
  EXPECT_EQ(gpus({}), 0);
  EXPECT_EQ(gpus({{"SLURM_GPUS_ON_NODE", "2"}}), 2);
  EXPECT_EQ(gpus({{"SLURM_GPUS_ON_NODE", "2"}, {"SLURMD_TRES_BIND", "gpu:per_task:1"}}), std::nullopt);
  EXPECT_EQ(find_place({}, of(kTorchrun + Variables{{"SLURM_GPUS_ON_NODE", "2"}})).slurm_gpus, std::nullopt);
}

TEST(Place, WhereThePortComesFrom) {
  EXPECT_EQ(find_place({}, of(kStep)).port_source, "computed from SLURM_JOB_ID=1 and SLURM_STEP_ID=0");
  EXPECT_EQ(find_place({}, of(kStep + kMaster)).port_source, "MASTER_PORT");
}

TEST(Place, ProcessEnvironment) {
  setenv("TRAINER_PLACE_TEST", "x", 1);
  EXPECT_EQ(process_environment()("TRAINER_PLACE_TEST"), "x");
  unsetenv("TRAINER_PLACE_TEST");
  EXPECT_EQ(process_environment()("TRAINER_PLACE_TEST"), std::nullopt);
}

}  // namespace
}  // namespace trainer::world
