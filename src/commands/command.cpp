#include "commands/command.h"

#include <fmt/format.h>

#include <CLI/Error.hpp>
#include <algorithm>
#include <array>

#include "base/text.h"
#include "session/version.h"
#include "supervision/failure.h"
#include "world/rank_env.h"

namespace trainer::commands {
namespace {

constexpr std::array kCommands = {
    Command{"train", "train as described in an experiment file; the default command", &train},
    Command{"launch", "train with one process per GPU, or several on the CPU", &launch},
    Command{"config", "show the reference of all keys, or a file with its defaults", &config},
    Command{"data", "show images of a data set as the network sees them", &data},
    Command{"checkpoint", "show, check, compare and average checkpoints", &checkpoint},
    Command{"export", "write the network of a checkpoint for other programs", &export_model},
    Command{"verify-resume", "check that a resumed run equals an uninterrupted one, bit for bit", &verify_resume},
    Command{"replay", "re-run a saved non-finite step in one process", &replay},
    Command{"list", "list the models, datasets, transforms and other components", &list},
};

void print_help() {
  fmt::print(
      "trainer: trains image classifiers from a YAML experiment file\n\n"
      "usage: trainer --config FILE [key=value ...]\n"
      "       trainer COMMAND [arguments]\n\ncommands:\n");
  for (const auto& command : kCommands) fmt::print("  {:<14} {}\n", command.name, command.doc);
  fmt::print(
      "\n`trainer COMMAND --help` shows its arguments. Exit codes: 0 done, 1 failure while running, 2 command line or configuration,\n"
      "3 data, 4 a peer, the network or a time-out, 5 a checkpoint, 75 stopped on request.\n");
}

ExitCode find_and_run(std::vector<std::string> args) {
  if (args.empty() || args.front() == "--help" || args.front() == "-h") {
    print_help();
    return args.empty() ? ExitCode::kUsage : ExitCode::kDone;
  }
  if (args.front() == "--version") {
    fmt::print("{}\n", session::version_text());
    return ExitCode::kDone;
  }
  if (args.front().starts_with("-")) return train(args);
  const auto found = std::ranges::find_if(kCommands, [&](const Command& command) { return args.front() == command.name; });
  if (found == kCommands.end()) {
    std::vector<std::string> names;
    for (const auto& command : kCommands) names.emplace_back(command.name);
    const auto near = nearest_name(args.front(), names);
    throw UsageError(fmt::format("\"{}\" is not a command{}; `trainer --help` lists them", args.front(),
                                 near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
  }
  args.erase(args.begin());
  return found->run(args);
}

}  // namespace

ExitCode run(const std::vector<std::string>& args) {
  const auto report_to_torchrun = [](const std::string& text, ExitCode exit_code) {
    supervision::write_error_file(world::process_environment()(world::kErrorFileVariable).value_or(""), text, exit_code);
  };
  try {
    return find_and_run(args);
  } catch (const CLI::Success&) {
    throw;
  } catch (const Error& error) {
    report_to_torchrun(error.what(), error.exit_code());
    throw;
  } catch (const std::exception& error) {
    report_to_torchrun(error.what(), ExitCode::kFailure);
    throw;
  }
}

}  // namespace trainer::commands
