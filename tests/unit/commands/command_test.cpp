#include "commands/command.h"

#include <gmock/gmock.h>

#include <CLI/Error.hpp>

namespace trainer::commands {
namespace {

using ::testing::HasSubstr;

// The error message for a wrong command line, and the exit code that main returns for it.
struct Refusal {
  std::string message;
  ExitCode exit_code = ExitCode::kDone;
};

Refusal refusal_of(const std::vector<std::string>& args) {
  try {
    return {"no error", run(args)};
  } catch (const CLI::ParseError& error) {
    return {error.what(), ExitCode::kUsage};
  } catch (const Error& error) {
    return {error.what(), error.exit_code()};
  }
}

TEST(Commands, RefuseWrongCommandLines) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"trian"}, "\"trian\" is not a command; did you mean \"train\"?"},
      {{"xyzzy"}, "\"xyzzy\" is not a command; `trainer --help` lists them"},
      {{"train"}, "--config is required"},
      {{"--config", "a.yaml", "--progress", "fancy"}, "--progress: fancy not in {bar,plain,none}"},
      {{"--config", "a.yaml", "--rank", "one"}, "--rank"},
      {{"--config", "a.yaml", "--epochs", "3"}, "--epochs"},
      {{"verify-resume", "--config", "a.yaml", "--steps", "1"}, "--steps"},
      {{"replay"}, "folder is required"},
      {{"export", "--checkpoint", "a.pt", "--format", "onnx", "--output", "a"},
       "--format: onnx not in {state_dict,safetensors,torchscript}"},
      {{"checkpoint"}, "subcommand is required"},
      {{"checkpoint", "diff", "a.pt"}, "files"},
      {{"checkpoint", "average", "a.pt"}, "--output is required"},
      {{"list", "networks"}, "networks not in {models,datasets,transforms,optimizers,lr_schedulers,losses}"},
      {{"data", "show", "--config", "a.yaml", "--output", "a.png", "--count", "0"}, "--count"},
      {{"launch"}, "trainer launch: nothing to start; add --config FILE, or a command with its arguments"},
      {{"launch", "--nproc-per-node"}, "--nproc-per-node"},
      {{"launch", "--nnodes", "2", "--node-rank", "2", "--config", "a.yaml"},
       "--node-rank 2 of --nnodes 2: hosts count from 0, so the last one is 1; correct one of them"},
      {{"launch", "--nnodes", "2", "--config", "a.yaml"},
       "--nnodes 2 needs --master-addr and --master-port: the address and port of host 0, the same on every host"},
      {{"launch", "--master-port", "70000", "--config", "a.yaml"}, "--master-port"},
  };
  for (const auto& [args, message] : cases) {
    const auto refusal = refusal_of(args);
    EXPECT_THAT(refusal.message, HasSubstr(message)) << args.front();
    EXPECT_EQ(refusal.exit_code, ExitCode::kUsage) << message;
  }
}

TEST(Commands, PrintTheirHelp) {
  for (const auto* command : {"train", "launch", "config", "data", "checkpoint", "export", "verify-resume", "replay", "list"}) {
    ::testing::internal::CaptureStdout();
    EXPECT_THROW(run({command, "--help"}), CLI::CallForHelp) << command;
    EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr(std::string("Usage: trainer ") + command)) << command;
  }
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run({"--help"}), ExitCode::kDone);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("re-run a saved non-finite step in one process"));
}

}  // namespace
}  // namespace trainer::commands
