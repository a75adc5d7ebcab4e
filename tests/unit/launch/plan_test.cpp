#include "launch/plan.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/program.h"
#include "tests/testing/temporary_folder.h"
#include "trainer/error.h"

namespace trainer::launch {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAreArray;
using trainer::testing::TemporaryFolder;
using Words = std::vector<std::string>;

TEST(SplitArguments, LauncherOptionsAreFirst) {
  const struct {
    Words args, own, trainer;
  } rows[] = {
      {{"--config", "x", "a=b"}, {}, {"--config", "x", "a=b"}},
      {{"--nproc-per-node", "2", "--config", "x"}, {"--nproc-per-node", "2"}, {"--config", "x"}},
      {{"--nproc_per_node=2", "--gpus", "0,2", "train", "--config", "x"},
       {"--nproc_per_node=2", "--gpus", "0,2"},
       {"train", "--config", "x"}},
      {{"--gpus=0", "--", "--config", "1", "--", "y"}, {"--gpus=0"}, {"--config", "1", "--", "y"}},
      {{"--help", "--config"}, {"--help"}, {"--config"}},
      {{"--config", "x", "--help"}, {}, {"--config", "x", "--help"}},
      {{"--nproc-per-node"}, {"--nproc-per-node"}, {}},
      {{"--no-python", "--gpus", "0", "./own", "--gpus", "all"}, {"--no-python", "--gpus", "0"}, {"./own", "--gpus", "all"}},
      {{"--"}, {}, {}},
      {{}, {}, {}},
  };
  const Words flags = {"--nproc-per-node", "--nproc_per_node", "--gpus"};
  for (const auto& row : rows) {
    const auto split = split_arguments(row.args, flags);
    EXPECT_EQ(split.own, row.own);
    EXPECT_EQ(split.trainer, row.trainer);
  }
}

TEST(SplitArguments, LauncherOptionsAmongTheTrainersAreRefused) {
  const Words flags = {"--nproc-per-node", "--gpus"};
  for (const auto& args : {Words{"--config", "x", "--gpus", "1"}, Words{"--nproc-per-node", "2", "--config", "x", "--gpus=1"},
                           Words{"--", "--config", "x", "--gpus", "1"}}) {
    try {
      split_arguments(args, flags);
      ADD_FAILURE() << "not refused";
    } catch (const UsageError& error) {
      EXPECT_STREQ(error.what(), "trainer launch: --gpus is an option of the launcher; put it before --config");
    }
  }
}

world::Environment visible(std::optional<std::string> devices) {
  return [devices](const std::string& name) { return name == "CUDA_VISIBLE_DEVICES" ? devices : std::nullopt; };
}

// A driver with three GPUs whose device files do not exist yet.
Driver driver_of_three(const std::filesystem::path& folder) {
  const Driver driver{.library = "libc.so.6", .gpus = folder / "gpus", .devices = folder / "dev"};
  for (const char* gpu : {"0000:01:00.0", "0000:02:00.0", "0000:81:00.0"}) std::filesystem::create_directories(driver.gpus / gpu);
  std::filesystem::create_directory(driver.devices);
  return driver;
}

TEST(NumProcesses, OnePerGpuElseTwo) {
  const TemporaryFolder folder;
  const Driver driver = driver_of_three(folder.path());
  const struct {
    Choice choice;
    std::optional<std::string> visible;
    int with_driver, without;
  } rows[] = {
      {{}, {}, 3, 2},
      {{}, "0,2,3,1", 4, 2},
      {{}, "GPU-1a2b-3c4d", 1, 2},
      {{}, "1,-1,2", 1, 2},
      {{}, "", 2, 2},
      {{}, "-1", 2, 2},
      {{.num_processes = "5", .gpus = ""}, "0", 5, 5},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.choice.num_processes + " --gpus " + row.choice.gpus + " visible " + row.visible.value_or("all"));
    EXPECT_EQ(num_processes(row.choice, visible(row.visible), driver), row.with_driver);
    EXPECT_EQ(num_processes(row.choice, visible(row.visible),
                            {.library = driver.library, .gpus = folder.path() / "absent", .devices = folder.path() / "absent"}),
              row.without);
  }
}

TEST(NumProcesses, OnePerChosenGpu) {
  const TemporaryFolder folder;
  const Driver driver = driver_of_three(folder.path());
  EXPECT_EQ(num_processes({.num_processes = "auto", .gpus = "1"}, visible("0,1"), driver), 1);
  EXPECT_EQ(num_processes({.num_processes = "auto", .gpus = "0,2,5"}, visible(""), driver), 3);
  EXPECT_EQ(num_processes({.num_processes = "1", .gpus = "0,2"}, visible({}), driver), 1);
}

// The files that a container sees on a host with three GPUs.
TEST(NumProcesses, OnlyTheGpusOfAContainerCount) {
  const TemporaryFolder folder;
  auto driver = driver_of_three(folder.path());
  for (const char* device : {"nvidia1", "nvidiactl", "nvidia-uvm", "null"}) std::ofstream(driver.devices / device);
  EXPECT_EQ(num_processes({}, visible({}), driver), 1);
  driver.library = "libtrainer-absent.so";
  EXPECT_EQ(num_processes({}, visible({}), driver), 2) << "expected the number for a host without a GPU";
}

TEST(NumProcesses, DevicesCountWhereTheDriverHasNoList) {
  const TemporaryFolder folder;
  const Driver driver{.library = "libc.so.6", .gpus = folder.path() / "absent", .devices = folder.path()};
  EXPECT_EQ(num_processes({}, visible({}), driver), 2) << "expected the number for a host without a GPU";
  std::ofstream(driver.devices / "dxg");
  EXPECT_EQ(num_processes({}, visible({}), driver), 1);
  for (const char* device : {"nvidia0", "nvidia1", "nvidia2", "nvidiactl"}) std::ofstream(driver.devices / device);
  EXPECT_EQ(num_processes({}, visible({}), driver), 3);
}

TEST(NumProcesses, InvalidValuesAreRefused) {
  const struct {
    Choice choice;
    const char* error;
  } rows[] = {
      {{.num_processes = "0", .gpus = ""}, "--nproc-per-node 0: expected auto or a number from 1 to 1024"},
      {{.num_processes = "-1", .gpus = ""}, "--nproc-per-node -1: expected auto or a number from 1 to 1024"},
      {{.num_processes = "2x", .gpus = ""}, "--nproc-per-node 2x: expected auto or a number from 1 to 1024"},
      {{.num_processes = "", .gpus = ""}, "--nproc-per-node : expected auto or a number from 1 to 1024"},
      {{.num_processes = "1025", .gpus = ""}, "--nproc-per-node 1025: expected auto or a number from 1 to 1024"},
      {{.num_processes = "auto", .gpus = "0,1"}, "--gpus 0,1: this host has no NVIDIA GPU that this process may use"},
      {{.num_processes = "auto", .gpus = "0,,2"}, "--gpus 0,,2: expected a list as in CUDA_VISIBLE_DEVICES, such as 0,2"},
      {{.num_processes = "auto", .gpus = "0, 2"}, "--gpus 0, 2: expected a list"},
      {{.num_processes = "auto", .gpus = "-1"}, "--gpus -1: expected a list"},
      {{.num_processes = "auto", .gpus = "1,0,1"}, "--gpus 1,0,1: a GPU is listed twice; list each GPU once"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.error);
    try {
      num_processes(row.choice, visible({}), {.gpus = "/nonexistent"});
      ADD_FAILURE() << "not refused";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(row.error));
    }
  }
}

TEST(NumProcesses, MoreThanTheChosenGpusAreRefused) {
  const TemporaryFolder folder;
  try {
    num_processes({.num_processes = "3", .gpus = "0,2"}, visible({}), driver_of_three(folder.path()));
    ADD_FAILURE() << "not refused";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--nproc-per-node 3 is more than the 2 GPUs of --gpus 0,2"));
  }
}

TEST(ChildEnvironment, HasTheRankAndNoVariablesOfOtherLaunchers) {
  world::RankEnv rank_env;
  rank_env.rank = rank_env.local_rank = 1;
  rank_env.world_size = rank_env.local_world_size = 3;
  rank_env.master_addr = "127.0.0.1";
  rank_env.master_port = 4711;
  const Words inherited = {"PATH=/bin",
                           "OMP_NUM_THREADS=3",
                           "RANK=7",
                           "WORLD_SIZE=8",
                           "LOCAL_RANK=7",
                           "LOCAL_WORLD_SIZE=8",
                           "MASTER_ADDR=h",
                           "MASTER_PORT=1",
                           "GROUP_RANK=1",
                           "GROUP_WORLD_SIZE=2",
                           "ROLE_RANK=0",
                           "ROLE_NAME=default",
                           "ROLE_WORLD_SIZE=1",
                           "PMI_RANK=0",
                           "PMIX_RANK=0",
                           "SLURM_PROCID=0",
                           "SLURM_LOCALID=0",
                           "SLURM_NTASKS=1",
                           "SLURM_STEP_ID=0",
                           "MPI_LOCALRANKID=0",
                           "OMPI_COMM_WORLD_RANK=0",
                           "SLURM_JOB_ID=5",
                           "TORCHELASTIC_RUN_ID=x",
                           "RANKING=kept",
                           "EMPTY=",
                           "SLURM_CPUS_PER_TASK=2",
                           "TORCH_LOGS=kept",
                           "CUDA_VISIBLE_DEVICES=0,1"};
  const Words own = {"RANK=1",       "WORLD_SIZE=3",       "LOCAL_RANK=1",          "LOCAL_WORLD_SIZE=3",
                     "GROUP_RANK=0", "GROUP_WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=4711"};
  Words expected = {"PATH=/bin", "OMP_NUM_THREADS=3",     "SLURM_JOB_ID=5", "RANKING=kept",
                    "EMPTY=",    "SLURM_CPUS_PER_TASK=2", "TORCH_LOGS=kept"};
  expected.insert(expected.end(), own.begin(), own.end());
  auto with_inherited_gpus = expected;
  with_inherited_gpus.emplace_back("CUDA_VISIBLE_DEVICES=0,1");
  auto with_chosen_gpus = expected;
  with_chosen_gpus.emplace_back("CUDA_VISIBLE_DEVICES=1,0,5");
  EXPECT_THAT(child_environment(inherited, rank_env, ""), UnorderedElementsAreArray(with_inherited_gpus));
  EXPECT_THAT(child_environment(inherited, rank_env, "1,0,5"), UnorderedElementsAreArray(with_chosen_gpus));
}

TEST(ChildEnvironment, EachProcessHasItsOwnMigDevice) {
  const Words inherited = {"CUDA_VISIBLE_DEVICES=MIG-a,MIG-b"};
  world::RankEnv rank_env{.world_size = 2, .local_world_size = 2};
  for (const auto& [local_rank, device] : {std::pair(0, "a"), std::pair(1, "b")}) {
    rank_env.rank = rank_env.local_rank = local_rank;
    const auto expected = std::string("CUDA_VISIBLE_DEVICES=MIG-") + device;
    EXPECT_THAT(child_environment(inherited, rank_env, ""), Contains(expected));
    EXPECT_THAT(child_environment({}, rank_env, "MIG-a,MIG-b"), Contains(expected));
  }
}

TEST(ChildEnvironment, IsReadBackByTheStartedProcess) {
  world::RankEnv rank_env;
  rank_env.rank = 3;
  rank_env.world_size = 6;
  rank_env.local_rank = 1;
  rank_env.local_world_size = 2;
  rank_env.num_nodes = 3;
  rank_env.master_addr = "127.0.0.1";
  rank_env.master_port = 4711;
  const auto variables = child_environment({}, rank_env, "");
  const auto found = world::find_rank_env({}, [&](const std::string& name) -> std::optional<std::string> {
    for (const auto& variable : variables) {
      if (variable.starts_with(name + '=')) return variable.substr(name.size() + 1);
    }
    return std::nullopt;
  });
  EXPECT_EQ(found.description, "rank 3 of 6 (local rank 1 of 2), from RANK and WORLD_SIZE");
  EXPECT_EQ(found.num_nodes, 3);
  EXPECT_EQ(found.master_addr, "127.0.0.1");
  EXPECT_EQ(found.master_port, 4711);
}

TEST(ChildEnvironment, HasTheSecretOfItsRun) {
  const world::RankEnv rank_env{.world_size = 1, .secret = {world::RunSecret::Source::kLauncher, "a1b2"}};
  const std::vector<std::string> inherited = {"TRAINER_LAUNCHER_TOKEN=of-another-run"};
  EXPECT_THAT(child_environment(inherited, rank_env, ""), AllOf(Contains("TRAINER_LAUNCHER_TOKEN=a1b2"), Not(Contains(inherited.front()))));
}

TEST(ChildEnvironment, Inherited) {
  setenv("TRAINER_LAUNCH_TEST", "a=b", 1);
  EXPECT_THAT(inherited_environment(), Contains("TRAINER_LAUNCH_TEST=a=b"));
  unsetenv("TRAINER_LAUNCH_TEST");
}

bool can_bind(int port) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  // This option is set because the store binds with it.
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  const bool is_bound = bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(descriptor);
  return is_bound;
}

TEST(FreePort, IsReservedUntilReleased) {
  int number = 0;
  {
    const FreePort one;
    const FreePort other;
    EXPECT_NE(one.number(), other.number());
    EXPECT_GT(one.number(), 1023);
    EXPECT_FALSE(can_bind(one.number()));
    number = one.number();
  }
  EXPECT_TRUE(can_bind(number));
}

}  // namespace
}  // namespace trainer::launch
