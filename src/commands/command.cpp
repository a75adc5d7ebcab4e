#include "commands/command.h"

#include <CLI/Error.hpp>
#include <algorithm>
#include <array>

#include "base/signal.h"
#include "cli/arguments.h"
#include "cli/light_commands.h"
#include "device/libtorch_settings.h"
#include "distributed/first_line.h"
#include "distributed/supervision/failure.h"
#include "launch/world/rank_env.h"
#include "run/recipe/registries.h"
#include "run/version.h"
#include "train/engine/failure_message.h"

namespace trainer::commands {
namespace {

constexpr std::array kCommands = {
    Command{"train", "train as described in an experiment file; the default command", &train},
    Command{"validate", "check an experiment file, and show what it would train, without data or GPU", &validate},
    Command{"eval", "evaluate the network of a checkpoint on the validation set", &eval},
    Command{"calibrate", "fit the temperature of a network's probabilities, and thresholds, to labelled images", &calibrate},
    Command{"predict", "print the classes that the network of a checkpoint predicts for image files", &predict},
    Command{"launch", "train with one process per GPU, or several on the CPU", &cli::launch},
    Command{"crossval", "train once for each fold of a cross-validation, and combine the results", &crossval},
    Command{"sweep", "train once for each combination of values of keys, and compare the results", &sweep},
    Command{"init", "write an experiment file to start from, for your images", &init},
    Command{"config", "show the reference of all keys, a file with its defaults, or the JSON schema", &config},
    Command{"data", "download, check, audit, show and pack data sets", &data},
    Command{"weights", "list, fetch and verify published weights from which training can start", &weights},
    Command{"checkpoint",
            "info, verify, diff, average, bill-of-materials: show, check, compare and average checkpoints, and list what they were made of",
            &checkpoint},
    Command{"export", "write the network of a checkpoint for other programs", &export_model},
    Command{"verify-export", "compare an exported file with its checkpoint on real images", &verify_export},
    Command{"verify-resume", "check that a resumed run equals an uninterrupted one, bit for bit", &verify_resume},
    Command{"lr-find", "find a learning rate: train while it increases, and suggest one from the curve of the loss", &lr_find},
    Command{"report", "write a page with the curves and results of runs, or serve it", &report},
    Command{"runs", "list the runs of a folder with their state and their best result", &cli::runs},
    Command{"compare", "show how runs differ: configuration, environment, result", &cli::compare},
    Command{"replay", "repeat a saved step whose loss or gradients were not finite, and show where this begins", &replay},
    Command{"doctor", "check whether this host is ready for training, and print how to fix problems", &doctor},
    Command{"list", "list the models, datasets, transforms and other components", &list},
};

void print_help() {
  std::string text =
      "trainer: trains image classifiers from a YAML experiment file\n\n"
      "usage: trainer --config FILE [key=value ...]\n"
      "       trainer COMMAND [arguments]\n"
      "       trainer --version|--licenses\n\ncommands:\n";
  for (const auto& command : kCommands) text += fmt::format("  {:<14} {}\n", command.name, command.doc);
  text +=
      "\n`trainer COMMAND --help` or `trainer help COMMAND` shows its arguments. Exit codes: 0 done, 1 failure while running, "
      "2 command line or configuration, 3 data, 4 another rank, a connection between ranks, or a timeout, 5 a checkpoint, 75 stopped on "
      "request.\n";
  print_text(cli::wrap_help(text));
}

const Command& find_command(const std::string& name) {
  const auto found = std::ranges::find_if(kCommands, [&](const Command& command) { return name == command.name; });
  if (found != kCommands.end()) return *found;
  if (cli::is_yaml_file(name)) throw UsageError(fmt::format("\"{}\" is not a command; did you mean --config {}?", name, name));
  std::vector<std::string> names = {"help"};
  for (const auto& command : kCommands) names.emplace_back(command.name);
  const auto near = nearest_name(name, names);
  throw UsageError(fmt::format("\"{}\" is not a command{}; `trainer --help` lists the commands", name,
                               near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
}

ExitCode find_and_run(std::vector<std::string> args) {
  if (args.empty()) {
    print_help();
    return ExitCode::kUsage;
  }
  const auto name = args.front();
  if (name == "--version") {
    print_text(run::version_text() + '\n');
    return ExitCode::kDone;
  }
  if (name == "--licenses") {
    print_text(kThirdPartyNotices);
    return ExitCode::kDone;
  }
  if (name == "help" && args.size() > 1) {
    // `trainer help train` is `trainer train --help`.
    args.erase(args.begin());
    args.emplace_back("--help");
    return find_and_run(std::move(args));
  }
  if (name == "help" || name == "--help" || name == "-h") {
    print_help();
    return ExitCode::kDone;
  }
  if (name.starts_with("-")) return train(args);
  // `train` handles stop signals itself from its start.
  if (name != "train") exit_on_stop_signals();
  const auto& command = find_command(name);
  args.erase(args.begin());
  return command.run(args);
}

}  // namespace

std::span<const Command> all_commands() { return kCommands; }

ExitCode run(const std::vector<std::string>& args) {
  const auto report_to_torchrun = [](const std::string& text, ExitCode exit_code) {
    supervision::write_error_file(world::process_environment()(world::kErrorFileVariable).value_or(""), text, exit_code);
  };
  device::set_library_defaults();
  try {
    return find_and_run(args);
  } catch (const CLI::Success&) {
    throw;
  } catch (const Error& error) {
    report_to_torchrun(error.what(), error.exit_code());
    throw;
  } catch (const std::exception& error) {
    const Error plain(engine::is_out_of_memory(error) ? "out of memory: " + distributed::first_line(error)
                                                      : distributed::first_line(error));
    report_to_torchrun(plain.what(), plain.exit_code());
    throw plain;
  }
}

void add_plugin_option(CLI::App& app) {
  app.add_option_function<std::vector<std::string>>(
         "--plugin",
         [](const std::vector<std::string>& files) {
           for (const auto& file : files) recipe::load_plugin(file);
         },
         "a shared library with additional components, as in the key `plugins`; may be given several times")
      ->type_name("FILE")
      ->allow_extra_args(false);
}

}  // namespace trainer::commands
