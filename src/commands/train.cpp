#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/crash.h"
#include "base/error.h"
#include "base/file.h"
#include "base/signal.h"
#include "checkpoint/saver.h"
#include "commands/arguments.h"
#include "commands/command.h"
#include "commands/rank_table.h"
#include "commands/resume.h"
#include "commands/start.h"
#include "commands/version.h"
#include "commands/watch.h"
#include "engine/init_from.h"
#include "engine/registries.h"
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
  std::string resume = "auto";
  std::string progress = "auto";
  world::PlaceFlags place;
};

TrainArguments parse_train_arguments(const std::vector<std::string>& args) {
  TrainArguments arguments;
  CLI::App app("Trains as an experiment file says.", "trainer train");
  arguments.experiment.add_to(app);
  app.add_option("--run-dir", arguments.run_directory, "folder of this run; default: <output_dir>/<experiment>")->type_name("DIR");
  app.add_option("--resume", arguments.resume,
                 "auto: goes on from the newest good checkpoint of its folder, where there is one; none: begins a new run; or a "
                 "checkpoint's file")
      ->type_name("auto|none|FILE");
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

// Saves into the run directory.
engine::Checkpoints::Target make_target(const run::RunDirectory& directory, checkpoint::Saver& saver, const std::string& config_text) {
  return {.saver = &saver, .complete = [&](state::Dict& tree) {
            state::Dict sizes;
            for (const auto& [name, size] : directory.event_files()) sizes.add(name, size);
            tree.add("event_files", std::move(sizes));
            tree.add("config", config_text);
            tree.add("trainer_version", trainer_version());
          }};
}

engine::NonFiniteSteps::Keep keep_in(const run::RunDirectory& directory, const engine::Parts& parts, const std::string& config_text) {
  return [&](const engine::StepRecord& record) {
    const auto folder = directory.non_finite_folder() / fmt::format("step_{}", record.step);
    engine::write_step(folder, record, *parts.model, config_text);
    return folder;
  };
}

// `started`: when this process was.
std::function<bool()> stop_condition(const std::optional<double>& max_minutes, std::chrono::steady_clock::time_point started) {
  return [=] {
    const std::chrono::duration<double, std::ratio<60>> minutes = std::chrono::steady_clock::now() - started;
    return stop_signal() != 0 || (max_minutes && minutes.count() >= *max_minutes);
  };
}

// What a run is trained in.
struct RunPlace {
  std::unique_ptr<run::RunDirectory> directory;  // on rank 0 alone
  std::filesystem::path checkpoint;              // to go on from; empty: none
  std::optional<Checkpoint> loaded;              // on rank 0 alone
};

// Collective.
ExitCode train_in(RunPlace& place, Start& start, engine::Parts& parts, const std::vector<RankRow>& ranks, reporting::Progress progress,
                  const std::function<bool()>& should_stop, Logger& logger) {
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
  start.assembly.together([&] {
    if (place.directory && place.checkpoint.empty() && !experiment.model.init_from.empty()) {
      logger.info("{}", engine::init_model(experiment.model, *parts.model));
    }
  });
  engine::join_ranks(experiment, parts);
  reporting::Reporter reporter;
  std::optional<checkpoint::Saver> saver;
  engine::Keeping keeping;
  start.assembly.together([&] {
    if (!place.directory) return;
    const auto& directory = *place.directory;
    saver.emplace(checkpoint::Store(directory.checkpoint_folder(), experiment.checkpoint.keep_last), parts.placement.pin_memory);
    keeping = {make_target(directory, *saver, start.config_text), keep_in(directory, parts, start.config_text)};
  });
  if (place.directory) {
    add_sinks(reporter, experiment, *place.directory, progress, logger);
  } else {
    reporter.add(reporting::make_console(logger, reporting::Progress::kPlain, /*colour=*/false));
  }
  engine::Trainer trainer(experiment, parts, reporter, should_stop, std::move(keeping));
  if (!place.checkpoint.empty()) {
    const auto checkpoint = share(place.checkpoint, std::move(place.loaded), *parts.ranks.world);
    start.assembly.together([&] { trainer.resume(checkpoint.tree, checkpoint.file.string()); });
  }
  return trainer.run() ? ExitCode::kDone : ExitCode::kStopped;
}

// For the GPUs of one host, the first of whose ranks calls it.
void warn_of_small_shared_memory(const std::vector<RankRow>& ranks, int rank, Logger& logger) {
  const auto& mine = ranks[static_cast<size_t>(rank)];
  const auto is_beside = [&](const RankRow& row) { return row.host == mine.host && !row.pci_bus_id.empty(); };
  if (mine.pci_bus_id.empty() || std::ranges::count_if(ranks, is_beside) < 2) return;
  const auto text = world::describe_small_shared_memory();
  if (!text.empty()) logger.warn("{}", text);
}

ExitCode exit_code_of(const std::exception& error) {
  const auto* said = dynamic_cast<const Error*>(&error);
  return said != nullptr ? said->exit_code() : ExitCode::kFailure;
}

// Calls `work`; what goes wrong belongs into the run's own log.
ExitCode logged(Watch& watch, distributed::Assembly& assembly, const std::function<ExitCode()>& work) {
  try {
    return work();
  } catch (const AgreedError& error) {
    watch.say(error.what(), error.exit_code());
    // Whoever ends first would be taken for the cause.
    try {
      assembly.together([] {});
    } catch (const PeerError&) {
      // All that was to be said has been said.
    }
    watch.end();
    return error.exit_code();
  } catch (const std::exception& error) {
    watch.say(watch.explain(error), exit_code_of(error));
    return exit_code_of(error);
  }
}

// For whoever starts the run again.
void say_where_it_goes_on(const run::RunDirectory& directory, Logger& logger) {
  const auto checkpoints = checkpoint::list_checkpoints(directory.checkpoint_folder());
  if (checkpoints.empty()) {
    logger.info("nothing is saved yet: the same command begins again from the first step");
  } else {
    logger.info("the same command goes on from {}", checkpoints.front().string());
  }
}

// Collective. `watch` has begun; what goes wrong before the run has a log of its own is thrown.
ExitCode train_with_others(const TrainArguments& arguments, const std::vector<std::string>& args, world::Place place, Logger& logger,
                           Watch& watch) {
  const auto started = std::chrono::steady_clock::now();
  const auto registries = engine::all_registries();
  auto start = meet_others(arguments.experiment, registries, logger, std::move(place), watch);
  const auto& experiment = start.experiment;
  const int rank = start.place.rank;

  std::unique_ptr<distributed::ProcessGroups> groups;
  auto parts = std::make_unique<engine::Parts>();
  start.assembly.together([&] { parts->placement = set_up_placement(start, logger); });
  std::vector<RankRow> ranks;
  start.assembly.together([&] {
    groups = make_groups(start, parts->placement);
    ranks = gather_ranks(*groups->world(), parts->placement);
    if (experiment.distributed.backend != config::BackendChoice::kGloo) {
      refuse_shared_gpus(ranks);
      if (start.local_rank == 0) warn_of_small_shared_memory(ranks, rank, logger);
    }
    *parts = engine::build_parts(experiment, parts->placement, engine::make_ranks(*groups));
  });

  const auto path =
      arguments.run_directory.empty() ? std::filesystem::path(experiment.output_dir) / experiment.experiment : arguments.run_directory;
  RunPlace run_place;
  auto& directory = run_place.directory;
  constexpr const char* kFinished = "finished";
  // A launcher's restart goes on from what its first attempt has saved.
  const auto resume = start.place.restart_attempt > 0 ? "auto" : arguments.resume;
  const auto decision = start.assembly.by_first([&]() -> std::string {
    directory = std::make_unique<run::RunDirectory>(path);
    if (!directory->left_by().empty()) {
      logger.warn("the run directory {} was held by {}, which ended without releasing it; its lock is taken over", path.string(),
                  directory->left_by());
    }
    auto beginning = choose_beginning(*directory, resume, start.config_text, logger);
    if (beginning.is_finished) return kFinished;
    write_file_atomically(directory->config_file(), start.config_text);
    write_file_atomically(directory->environment_file(), environment_json(args, ranks));
    add_file(logger, directory->log_file());
    run_place.loaded = std::move(beginning.checkpoint);
    return run_place.loaded ? run_place.loaded->file.string() : "";
  });
  if (decision == kFinished) return ExitCode::kDone;
  run_place.checkpoint = decision;
  if (rank != 0 && experiment.logging.all_ranks) {
    std::filesystem::create_directories(path);
    add_file(logger, run::rank_log_file(path, rank));
  }
  set_crash_file(rank == 0 ? directory->log_file() : run::rank_log_file(path, rank));
  const auto exit_code = logged(watch, start.assembly, [&] {
    return train_in(run_place, start, *parts, ranks, choose_progress(arguments.progress),
                    stop_condition(experiment.training.max_minutes, started), logger);
  });
  const bool failed = exit_code != ExitCode::kDone && exit_code != ExitCode::kStopped;
  const bool may_go_on = exit_code == ExitCode::kFailure || exit_code == ExitCode::kPeer;
  if (may_go_on && directory) say_where_it_goes_on(*directory, logger);
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
  const auto arguments = parse_train_arguments(args);
  // What LibTorch has to say of a lost connection is a stack trace; the sentences are ours.
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  c10::initLogging();
  auto place = world::find_place(arguments.place, world::process_environment());
  const auto logger = make_console_logger(place.rank);
  install_crash_handlers();
  install_stop_handlers();
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
