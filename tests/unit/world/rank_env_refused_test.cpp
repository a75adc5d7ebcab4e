#include <gmock/gmock.h>

#include <vector>

#include "launch/world/rank_env.h"
#include "tests/testing/launchers.h"
#include "trainer/error.h"

namespace trainer::world {
namespace {

using ::testing::HasSubstr;

struct Refused {
  RankFlags flags;
  Variables variables;
  const char* error;
};

const std::vector<Refused> kRefused = {
    {{}, kTorchrun + Variables{{"RANK", "4"}}, "RANK=4 with WORLD_SIZE=4: ranks are numbered from 0, so the last one is 3"},
    {{}, {{"RANK", "1"}}, "RANK=1 is set, but WORLD_SIZE is not; set both or neither"},
    {{}, {{"WORLD_SIZE", "2"}}, "WORLD_SIZE=2 is set, but RANK is not; set both or neither"},
    {{}, kTorchrun + Variables{{"RANK", "one"}}, "RANK=one: expected a whole number of at least 0"},
    {{}, kTorchrun + Variables{{"RANK", "1.5"}}, "RANK=1.5: expected a whole number of at least 0"},
    {{}, kTorchrun + Variables{{"RANK", "-1"}}, "RANK=-1: expected a whole number of at least 0"},
    {{}, kTorchrun + Variables{{"RANK", "99999999999"}}, "RANK=99999999999: expected a whole number of at least 0"},
    {{},
     kTorchrun + Variables{{"WORLD_SIZE", "2000000000"}},
     "WORLD_SIZE=2000000000: at most 100000 ranks are possible; set a smaller number"},
    {{},
     kTorchrun + Variables{{"RANK", "2000000000"}},
     "RANK=2000000000 with WORLD_SIZE=4: ranks are numbered from 0, so the last one is 3"},
    {{}, kTorchrun + Variables{{"LOCAL_RANK", "2000000000"}}, "LOCAL_RANK=2000000000 with LOCAL_WORLD_SIZE=2"},
    {{}, kTorchrun + Variables{{"LOCAL_WORLD_SIZE", "2000000000"}}, "LOCAL_WORLD_SIZE=2000000000 is more than WORLD_SIZE=4"},
    {{},
     kTorchrun + Variables{{"GROUP_WORLD_SIZE", "2000000000"}},
     "GROUP_WORLD_SIZE=2000000000: expected a whole number from 1 to 100000"},
    {{.rank = 0, .world_size = 2000000000}, {}, "--world-size 2000000000: at most 100000 ranks are possible"},
    {{.rank = 5000000000, .world_size = 2}, {}, "--rank 5000000000: expected a whole number of at least 0"},
    {{}, kStep + Variables{{"SLURM_STEP_NUM_TASKS", "2000000000"}}, "SLURM_STEP_NUM_TASKS=2000000000: at most 100000 ranks are possible"},
    {{}, kTorchrun + Variables{{"WORLD_SIZE", "0"}}, "WORLD_SIZE=0: expected a whole number of at least 1"},
    {{}, kTorchrun + Variables{{"MASTER_PORT", "http"}}, "MASTER_PORT=http: expected a whole number from 1 to 65535"},
    {{}, kTorchrun + Variables{{"MASTER_PORT", "0"}}, "MASTER_PORT=0: expected a whole number from 1 to 65535"},
    {{}, kTorchrun + Variables{{"MASTER_PORT", "65536"}}, "MASTER_PORT=65536: expected a whole number from 1 to 65535"},
    {{},
     kTorchrun + Variables{{"LOCAL_RANK", "2"}},
     "LOCAL_RANK=2 with LOCAL_WORLD_SIZE=2: ranks are numbered from 0, so the last one is 1"},
    {{}, kTorchrun + Variables{{"LOCAL_RANK", "4"}, {"LOCAL_WORLD_SIZE", ""}}, "LOCAL_RANK=4 with WORLD_SIZE=4"},
    {{}, kTorchrun + Variables{{"LOCAL_RANK", ""}}, "LOCAL_WORLD_SIZE=2 is set, but LOCAL_RANK is not; set both or neither"},
    {{}, kTorchrun + Variables{{"LOCAL_WORLD_SIZE", "8"}}, "LOCAL_WORLD_SIZE=8 is more than WORLD_SIZE=4"},
    {{}, kTorchrun + Variables{{"TORCHELASTIC_RESTART_COUNT", "x"}}, "TORCHELASTIC_RESTART_COUNT=x: expected a whole number"},
    {{.rank = 1, .world_size = 4}, kTorchrun + Variables{{"RANK", "0"}}, "--rank 1 contradicts RANK=0 of the environment"},
    {{.rank = 1, .world_size = 2}, kTorchrun, "--world-size 2 contradicts WORLD_SIZE=4 of the environment"},
    {{.local_rank = 0}, kTorchrun, "--local-rank 0 contradicts LOCAL_RANK=1 of the environment"},
    {{.rank = 1, .world_size = 4, .local_rank = 0}, kTorchrun, "--local-rank 0 contradicts LOCAL_RANK=1 of the environment"},
    {{.rank = 1}, kTorchrun, "--rank 1 is set, but --world-size is not; set both or neither"},
    {{.world_size = 2}, {}, "--world-size 2 is set, but --rank is not; set both or neither"},
    {{.rank = 2, .world_size = 2}, {}, "--rank 2 with --world-size 2: ranks are numbered from 0"},
    {{.rank = -1, .world_size = 2}, {}, "--rank -1: expected a whole number of at least 0"},
    {{.rank = 0, .world_size = 0}, {}, "--world-size 0: expected a whole number of at least 1"},
    {{.local_rank = 0}, {}, "--local-rank 0 is set without --rank and --world-size, or RANK and WORLD_SIZE"},
    {{.local_rank = 0}, kStep, "--local-rank 0 is set without --rank and --world-size, or RANK and WORLD_SIZE"},
    {{.init_method = "tcp://h:1"}, {}, "--init-method tcp://h:1 is set, but neither --rank and --world-size nor the variables"},
    {{}, {{"OMPI_COMM_WORLD_RANK", "0"}}, "OMPI_COMM_WORLD_RANK=0 is set, but OMPI_COMM_WORLD_SIZE is not"},
    {{}, {{"PMI_SIZE", "2"}}, "PMI_SIZE=2 is set, but PMI_RANK is not"},
    {{}, kMpich + Variables{{"PMI_RANK", "4"}}, "PMI_RANK=4 with PMI_SIZE=4"},
    {{}, {{"SLURM_STEP_ID", "0"}}, "SLURM_STEP_ID is set, but SLURM_PROCID and SLURM_NTASKS are not"},
    {{}, kStep + Variables{{"SLURM_PROCID", ""}}, "SLURM_STEP_NUM_TASKS=3 is set, but SLURM_PROCID is not"},
    {{},
     kStep + Variables{{"SLURM_LOCALID", "1"}},
     "SLURM_LOCALID=1 with SLURM_STEP_TASKS_PER_NODE=2,1: ranks are numbered from 0, so the last one is 0"},
    {{}, kStep + Variables{{"SLURM_NODEID", "2"}}, "SLURM_STEP_TASKS_PER_NODE=2,1 has no entry for SLURM_NODEID=2"},
    {{}, kStep + Variables{{"SLURM_STEP_NODELIST", "n[1-"}}, "SLURM_STEP_NODELIST=n[1-: expected host names"},
};

TEST(RankEnv, IsRefused) {
  for (const auto& row : kRefused) {
    SCOPED_TRACE(row.error);
    try {
      find_rank_env(row.flags, of(row.variables));
      ADD_FAILURE() << "not refused";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(row.error));
    }
  }
}

}  // namespace
}  // namespace trainer::world
