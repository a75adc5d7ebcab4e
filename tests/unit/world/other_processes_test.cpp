#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "launch/world/host_resources.h"
#include "tests/testing/temporary_folder.h"

namespace trainer::world {
namespace {

using ::testing::ElementsAre;

void write(const std::filesystem::path& folder, const std::string& name, const std::string& command_line) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "comm") << name << '\n';
  std::ofstream(folder / "cmdline") << command_line;
}

TEST(ProcessesOfOtherRuns, HaveTheSameNameAndAreNoLaunchersNorOfThisRun) {
  const trainer::testing::TemporaryFolder folder;
  const auto& proc = folder.path();
  const std::string train("trainer\0--config\0launch\0", 24);
  // These process ids belong to processes that exist, because their cores are looked up.
  const auto parent = std::to_string(getppid());
  write(proc / "self", "trainer", train);
  write(proc / std::to_string(getpid()), "trainer", train);
  write(proc / parent, "trainer", train);
  write(proc / "driver", "trainer", train);
  EXPECT_THAT(processes_of_other_runs({}, proc), ElementsAre(getppid()));
  EXPECT_THAT(processes_of_other_runs(std::array<int64_t, 1>{getppid()}, proc), ElementsAre());
  write(proc / parent, "trainer", std::string("trainer\0launch\0--config\0", 24));
  EXPECT_THAT(processes_of_other_runs({}, proc), ElementsAre());
  write(proc / parent, "python3", train);
  EXPECT_THAT(processes_of_other_runs({}, proc), ElementsAre());
  EXPECT_THAT(processes_of_other_runs({}, proc / "absent"), ElementsAre());
}

TEST(ProcessesOfOtherRuns, AreDescribedInOneLine) {
  EXPECT_EQ(describe_other_runs({}, 2), "");
  EXPECT_EQ(
      describe_other_runs({7}, 1),
      "other runs also use the cores of this host (process 7), but that does not reduce the threads of this run (1 thread for each rank); "
      "set runtime.threads to change the number");
  EXPECT_EQ(
      describe_other_runs({1, 2, 3, 4, 5, 6, 7, 8, 9}, 2),
      "other runs also use the cores of this host (process 1, 2, 3, 4, 5, 6, 7, 8, ...), but that does not reduce the threads of this "
      "run (2 threads for each rank); set runtime.threads to change the number");
}

}  // namespace
}  // namespace trainer::world
