#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/crash.h"
#include "base/error.h"
#include "base/file.h"
#include "base/signal.h"
#include "commands/arguments.h"
#include "commands/command.h"
#include "commands/rank_table.h"
#include "commands/start.h"
#include "commands/version.h"
#include "commands/watch.h"
#include "engine/catalog.h"
#include "engine/trainer.h"
#include "reporting/sinks.h"
#include "run/run_directory.h"
#include "world/host_resources.h"
#include "world/place.h"

namespace trainer::commands {
namespace {

struct TrainArguments {
  ExperimentArguments experiment;
  std::filesystem::path run_directory;
  std::string progress = "auto";
  world::PlaceFlags place;
};

TrainArguments parse_arguments(const std::vector<std::string>& args) {
  TrainArguments arguments;
  CLI::App app("Trains as an experiment file says.", "trainer train");
  arguments.experiment.add_to(app);
  app.add_option("--run-dir", arguments.run_directory, "folder of this run; default: <output_dir>/<experiment>")->type_name("DIR");
  app.add_option("--progress", arguments.progress,
                 "bar, plain (a line each logging.every_steps) or none; default: bar on a terminal, else plain")
      ->check(CLI::IsMember({"bar", "plain", "none"}));
  // Underscores as torchrun's users write them.
  app.add_option("--rank", arguments.place.rank, "this process among all, from 0; a launcher's variables say it otherwise");
  app.add_option("--world-size,--world_size", arguments.place.world_size, "number of processes");
  app.add_option("--local-rank,--local_rank", arguments.place.local_rank, "this process among those of its host");
  app.add_option("--init-method,--init_method", arguments.place.init_method,
                 "where the processes meet: env://, tcp://HOST:PORT or file:///PATH")
      ->type_name("URL");
  parse(app, args);
  return arguments;
}

reporting::Progress choose_progress(const std::string& word) {
  if (word == "none") return reporting::Progress::kNone;
  return word == "bar" || (word == "auto" && isatty(STDERR_FILENO) != 0) ? reporting::Progress::kBar : reporting::Progress::kPlain;
}

std::string environment_json(const std::vector<std::string>& args, const std::vector<RankRow>& ranks) {
  const nlohmann::ordered_json environment = {
      {"command_line", args},
      {"working_directory", std::filesystem::current_path().string()},
      {"trainer_version", trainer_version()},
      {"git_revision", git_revision()},
      {"libtorch_version", libtorch_version()},
      {"compiler", compiler_version()},
      {"world_size", ranks.size()},
      {"ranks", ranks},
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

// True when the folder holds a finished run, which is said. An unfinished one is begun again by a launcher's restart, and else an error.
bool is_finished(const run::RunDirectory& directory, int restart_attempt, Logger& logger) {
  switch (directory.earlier()) {
    case run::RunDirectory::Earlier::kNothing:
      return false;
    case run::RunDirectory::Earlier::kFinished:
      logger.info("{} holds a finished run (see {}); to train again, choose another --run-dir or remove the folder",
                  directory.path().string(), directory.summary_file().string());
      return true;
    case run::RunDirectory::Earlier::kUnfinished:
      if (restart_attempt > 0) {
        logger.warn("restart {}: the run in {} begins again from its first step", restart_attempt, directory.path().string());
        directory.clear();
        return false;
      }
      throw UsageError(directory.path().string() +
                       " holds an unfinished run, which is not overwritten; choose another --run-dir or remove the folder");
  }
  return false;
}

// Collective. `directory`: on rank 0 alone.
ExitCode train_in(const run::RunDirectory* directory, Start& start, engine::Parts& parts, const std::vector<RankRow>& ranks,
                  reporting::Progress progress, Logger& logger) {
  const auto& experiment = start.experiment;
  logger.info("{}: {}", experiment.experiment, device::to_string(parts.placement));
  if (ranks.size() > 1) {
    for (const auto& line : table_lines(ranks)) logger.info("{}", line);
  }
  // What has to be downloaded is downloaded by one process of each host.
  const auto open_data = [&] { engine::open_data(experiment, parts, logger); };
  start.assembly.together([&] {
    if (start.local_rank == 0) open_data();
  });
  start.assembly.together([&] {
    if (start.local_rank != 0) open_data();
  });
  engine::join_ranks(experiment, parts);
  reporting::Reporter reporter;
  if (directory != nullptr) {
    add_sinks(reporter, experiment, *directory, progress, logger);
  } else {
    reporter.add(reporting::make_console(logger, reporting::Progress::kPlain, /*colour=*/false));
  }
  engine::NonFiniteSteps::Keep keep;
  if (directory != nullptr) {
    keep = [&](const engine::StepRecord& record) {
      const auto folder = directory->non_finite_folder() / fmt::format("step_{}", record.step);
      engine::write_step(folder, record, *parts.model, start.config_text);
      return folder;
    };
  }
  engine::Trainer trainer(
      experiment, parts, reporter, [] { return stop_signal() != 0; }, std::move(keep));
  return trainer.run() ? ExitCode::kDone : ExitCode::kStopped;
}

ExitCode exit_code_of(const std::exception& error) {
  const auto* said = dynamic_cast<const Error*>(&error);
  return said != nullptr ? said->exit_code() : ExitCode::kFailure;
}

// Calls `work`; what goes wrong belongs into the run's own log.
ExitCode logged(Logger& logger, Watch& watch, distributed::Assembly& assembly, const std::function<ExitCode()>& work) {
  try {
    return work();
  } catch (const AgreedError& error) {
    if (error.what()[0] != '\0') logger.error("{}", error.what());
    // Whoever ends first would be taken for the cause.
    try {
      assembly.together([] {});
    } catch (const PeerError&) {
      // All that was to be said has been said.
    }
    watch.end();
    return error.exit_code();
  } catch (const std::exception& error) {
    const auto text = watch.explain(error);
    if (!text.empty()) logger.error("{}", text);
    return exit_code_of(error);
  }
}

// Collective. `watch` has begun; what goes wrong before the run has a log of its own is thrown.
ExitCode train_with_others(const TrainArguments& arguments, const std::vector<std::string>& args, world::Place place, Logger& logger,
                           Watch& watch) {
  const auto catalog = engine::make_catalog();
  auto start = meet_others(arguments.experiment, catalog, logger, std::move(place), watch);
  const auto& experiment = start.experiment;
  const int rank = start.place.rank;

  std::unique_ptr<distributed::ProcessGroups> groups;
  auto parts = std::make_unique<engine::Parts>();
  start.assembly.together([&] {
    device::configure_cpu_allocator();
    const device::HostShare share{.num_cpus = world::available_cpus(start.num_sharing_cpus), .local_rank = start.local_rank};
    parts->placement = set_up_placement(experiment, share, logger);
  });
  std::vector<RankRow> ranks;
  start.assembly.together([&] {
    groups = make_groups(start, parts->placement);
    ranks = gather_ranks(*groups->world(), parts->placement);
    if (experiment.distributed.backend != config::BackendChoice::kGloo) refuse_shared_gpus(ranks);
    *parts = engine::build_parts(experiment, parts->placement, engine::make_ranks(*groups));
  });

  const auto path =
      arguments.run_directory.empty() ? std::filesystem::path(experiment.output_dir) / experiment.experiment : arguments.run_directory;
  std::unique_ptr<run::RunDirectory> directory;
  const auto finished = start.assembly.by_first([&]() -> std::string {
    directory = std::make_unique<run::RunDirectory>(path);
    if (!directory->left_by().empty()) {
      logger.warn("the run directory {} was held by {}, which ended without releasing it; its lock is taken over", path.string(),
                  directory->left_by());
    }
    if (is_finished(*directory, start.place.restart_attempt, logger)) return "finished";
    write_file_atomically(directory->config_file(), start.config_text);
    write_file_atomically(directory->environment_file(), environment_json(args, ranks));
    add_file(logger, directory->log_file());
    return "";
  });
  if (!finished.empty()) return ExitCode::kDone;
  if (rank != 0 && experiment.logging.all_ranks) {
    std::filesystem::create_directories(path);
    add_file(logger, run::rank_log_file(path, rank));
  }
  set_crash_file(rank == 0 ? directory->log_file() : run::rank_log_file(path, rank));
  install_stop_handlers();
  const auto exit_code = logged(logger, watch, start.assembly, [&] {
    return train_in(directory.get(), start, *parts, ranks, choose_progress(arguments.progress), logger);
  });
  const bool failed = exit_code != ExitCode::kDone && exit_code != ExitCode::kStopped;
  if (failed && start.place.world_size > 1) {
    directory.reset();
    // The other ranks hear of it when this process's connections close; destructors would wait for them first.
    logger.flush();
    _exit(static_cast<int>(exit_code));
  }
  // Loader threads may still read the data: the parts end in the reverse of their order, which an assignment would not keep.
  parts.reset();
  watch.end();
  groups->shutdown();
  return exit_code;
}

}  // namespace

ExitCode train(const std::vector<std::string>& args) {
  const auto arguments = parse_arguments(args);
  // What LibTorch has to say of a lost connection is a stack trace; the sentences are ours.
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  c10::initLogging();
  auto place = world::find_place(arguments.place, world::process_environment());
  const auto logger = make_console_logger(place.rank);
  install_crash_handlers();
  // Whoever reads what is said here may go; the training goes on.
  std::signal(SIGPIPE, SIG_IGN);
  Watch watch(place, logger);
  try {
    return train_with_others(arguments, args, std::move(place), *logger, watch);
  } catch (const std::exception& error) {
    throw Error(watch.explain(error), exit_code_of(error));
  }
}

}  // namespace trainer::commands
