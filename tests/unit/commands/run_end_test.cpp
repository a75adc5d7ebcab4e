#include "commands/run_end.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/testing/temporary_folder.h"

namespace trainer::commands {
namespace {

using Lines = std::vector<std::string>;

TEST(LinesAfterRun, NameTheFilesAndTheNextCommands) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "my run";
  const run::RunDirectory directory(path);
  const RunCommandLine start{.experiment = {.file = "a.yaml", .overrides = {}}, .run_directory = {}, .rank_env = {}};
  const auto quoted_path = "'" + path.string();
  EXPECT_EQ(lines_after_run({.reason = "done"}, start, directory, true),
            Lines({"files in " + path.string() + ": summary.json, train.log", "for curves:  trainer report " + quoted_path + "'"}));
  std::filesystem::create_directories(directory.checkpoint_folder());
  std::ofstream(directory.checkpoint_folder() / "best.pt") << "x";
  EXPECT_EQ(lines_after_run({.reason = "done"}, start, directory, true),
            Lines({"files in " + path.string() + ": checkpoints/best.pt, summary.json, train.log",
                   "to evaluate: trainer eval --checkpoint " + quoted_path + "/checkpoints/best.pt'",
                   "to predict:  trainer predict --checkpoint " + quoted_path + "/checkpoints/best.pt' IMAGE",
                   "to export:   trainer export --checkpoint " + quoted_path + "/checkpoints/best.pt' --output model.onnx",
                   "for curves:  trainer report " + quoted_path + "'"}));
  EXPECT_EQ(lines_after_run({.reason = "done"}, start, directory, /*takes_images=*/false).size(), 4);
  EXPECT_EQ(lines_after_run({.reason = "stopped"}, start, directory, true).at(1).substr(0, 13), "to continue: ");
  EXPECT_EQ(lines_after_run({.reason = "early"}, start, directory, true), lines_after_run({.reason = "done"}, start, directory, true));
  EXPECT_EQ(lines_after_run({.reason = "failed"}, start, directory, true), Lines());
}

TEST(ContinuingCommand, IsTheOneThatStartedTheRun) {
  const testing::TemporaryFolder folder;
  const run::RunDirectory directory(folder.path() / "run");
  const auto file = folder.path() / "a file.yaml";
  std::ofstream(file) << "experiment: x";
  RunCommandLine start{.experiment = {.file = file, .overrides = {"optimizer={name: sgd, lr: 0.1}"}}, .run_directory = {}, .rank_env = {}};
  const auto config = " --config '" + file.string() + "' 'optimizer={name: sgd, lr: 0.1}'";
  EXPECT_EQ(continuing_command(start, directory), "trainer" + config);
  start.run_directory = "runs/my run";
  EXPECT_EQ(continuing_command(start, directory), "trainer" + config + " --run-dir 'runs/my run'");
  start.rank_env.world_size = start.rank_env.local_world_size = 2;
  EXPECT_EQ(continuing_command(start, directory), "the same command");
  start.rank_env.launcher_messages_descriptor = 5;
  EXPECT_EQ(continuing_command(start, directory), "trainer launch --nproc-per-node 2" + config + " --run-dir 'runs/my run'");
  start.rank_env.world_size = 4;
  EXPECT_EQ(continuing_command(start, directory), "the same command");
}

TEST(ContinuingCommand, UsesTheRunDirectoryWhenTheExperimentCameThroughAPipe) {
  const testing::TemporaryFolder folder;
  const run::RunDirectory directory(folder.path() / "run");
  const RunCommandLine start{.experiment = {.file = "-", .overrides = {"seed=1"}}, .run_directory = "runs/x", .rank_env = {}};
  EXPECT_EQ(continuing_command(start, directory), "trainer --config " + directory.config_file().string() + " --run-dir runs/x");
}

}  // namespace
}  // namespace trainer::commands
