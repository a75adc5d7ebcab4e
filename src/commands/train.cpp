#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/signal.h"
#include "commands/arguments.h"
#include "commands/command.h"
#include "commands/version.h"
#include "engine/catalog.h"
#include "engine/trainer.h"
#include "reporting/sinks.h"
#include "run/run_directory.h"
#include "world/host_resources.h"

namespace trainer::commands {
namespace {

struct TrainArguments {
  ExperimentArguments experiment;
  std::filesystem::path run_directory;
  std::string progress = "auto";
};

TrainArguments parse_arguments(const std::vector<std::string>& args) {
  TrainArguments arguments;
  CLI::App app("Trains as an experiment file says.", "trainer train");
  arguments.experiment.add_to(app);
  app.add_option("--run-dir", arguments.run_directory, "folder of this run; default: <output_dir>/<experiment>")->type_name("DIR");
  app.add_option("--progress", arguments.progress,
                 "bar, plain (a line each logging.every_steps) or none; default: bar on a terminal, else plain")
      ->check(CLI::IsMember({"bar", "plain", "none"}));
  parse(app, args);
  return arguments;
}

reporting::Progress choose_progress(const std::string& word) {
  if (word == "none") return reporting::Progress::kNone;
  return word == "bar" || (word == "auto" && isatty(STDERR_FILENO) != 0) ? reporting::Progress::kBar : reporting::Progress::kPlain;
}

std::string environment_json(const std::vector<std::string>& args, const device::Placement& placement) {
  const nlohmann::ordered_json environment = {
      {"command_line", args},
      {"working_directory", std::filesystem::current_path().string()},
      {"trainer_version", trainer_version()},
      {"git_revision", git_revision()},
      {"libtorch_version", libtorch_version()},
      {"compiler", compiler_version()},
      {"host", world::host_name()},
      {"process_id", getpid()},
      {"available_cpus", world::available_cpus()},
      {"device", placement.device.str()},
      {"threads", placement.num_threads},
      {"world_size", 1},
  };
  return environment.dump(2) + '\n';
}

void add_sinks(reporting::Reporter& reporter, const config::Experiment& experiment, const run::RunDirectory& directory,
               reporting::Progress progress, Logger& logger) {
  reporter.add(reporting::make_console(logger, progress, world::wants_colour()));
  reporter.add(reporting::make_jsonl(directory.metrics_file()));
  reporter.add(reporting::make_csv(directory.metrics_table_file()));
  if (experiment.logging.tensorboard) reporter.add(reporting::make_tensorboard(directory.tensorboard_folder()));
  reporter.add(reporting::make_summary(directory.summary_file()));
}

// True when the folder holds a finished run, which is said; throws when it holds an unfinished one.
bool is_finished(const run::RunDirectory& directory, Logger& logger) {
  switch (directory.earlier()) {
    case run::RunDirectory::Earlier::kNothing:
      return false;
    case run::RunDirectory::Earlier::kFinished:
      logger.info("{} holds a finished run (see {}); to train again, choose another --run-dir or remove the folder",
                  directory.path().string(), directory.summary_file().string());
      return true;
    case run::RunDirectory::Earlier::kUnfinished:
      throw UsageError(directory.path().string() +
                       " holds an unfinished run, which is not overwritten; choose another --run-dir or remove the folder");
  }
  return false;
}

ExitCode train_in(const run::RunDirectory& directory, const config::Experiment& experiment, engine::Parts& parts,
                  reporting::Progress progress, Logger& logger) {
  logger.info("{}: {}", experiment.experiment, device::to_string(parts.placement));
  engine::open_data(experiment, parts, logger);
  reporting::Reporter reporter;
  add_sinks(reporter, experiment, directory, progress, logger);
  engine::Trainer trainer(experiment, parts, reporter, [] { return stop_signal() != 0; });
  return trainer.run() ? ExitCode::kDone : ExitCode::kStopped;
}

}  // namespace

ExitCode train(const std::vector<std::string>& args) {
  const auto arguments = parse_arguments(args);
  const auto catalog = engine::make_catalog();
  auto experiment = config::load(arguments.experiment.file, arguments.experiment.overrides, catalog);

  device::configure_cpu_allocator();
  const auto logger = make_console_logger();
  const auto* cuda = device::open_cuda_module(*logger);
  const auto placement =
      device::choose_placement(experiment.runtime, experiment.amp, experiment.dataloader.pin_memory, world::available_cpus(), cuda);
  device::apply_placement(placement, experiment.runtime);
  auto parts = engine::build_parts(experiment, placement);

  const run::RunDirectory directory(arguments.run_directory.empty() ? std::filesystem::path(experiment.output_dir) / experiment.experiment
                                                                    : arguments.run_directory);
  if (is_finished(directory, *logger)) return ExitCode::kDone;
  install_stop_handlers();
  write_file_atomically(directory.config_file(), config::to_yaml(experiment, catalog));
  write_file_atomically(directory.environment_file(), environment_json(args, placement));
  add_file(*logger, directory.log_file());
  // What goes wrong from here on belongs into the run's own log too.
  try {
    return train_in(directory, experiment, parts, choose_progress(arguments.progress), *logger);
  } catch (const Error& error) {
    logger->error("{}", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    logger->error("{}", error.what());
    return ExitCode::kFailure;
  }
}

}  // namespace trainer::commands
