#include <chrono>
#include <memory>

#include "base/signal.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "reporting/checked_reporter.h"
#include "reporting/sinks.h"
#include "session/session.h"
#include "task/task.h"
#include "world/host_resources.h"

namespace trainer::commands {
namespace {

struct TrainArguments {
  config::ExperimentSource experiment;
  std::filesystem::path run_directory;
  std::string resume = "auto";
  std::string progress = "auto";
  world::RankFlags rank_env;
};

TrainArguments parse_train_arguments(const std::vector<std::string>& args) {
  TrainArguments arguments;
  CLI::App app("Trains as described in an experiment file.", "trainer train");
  cli::add_experiment(app, arguments.experiment);
  app.add_option("--run-dir", arguments.run_directory, "folder of the run; default: <output_dir>/<experiment>")->type_name("DIR");
  app.add_option("--resume", arguments.resume,
                 "auto: resume from the newest complete checkpoint in the run's folder, if there is one; none: start a new run; or a "
                 "checkpoint, or the folder of another run, whose newest one is taken")
      ->type_name("auto|none|FILE|DIR");
  app.add_option(
         "--progress", arguments.progress,
         "bar (one line for each epoch stays), plain (one line every logging.every_steps steps) or none; default: bar on a terminal, "
         "else plain")
      ->check(CLI::IsMember({"bar", "plain", "none"}));
  cli::add_rank_flags(app, arguments.rank_env);
  cli::parse(app, args);
  return arguments;
}

reporting::Progress choose_progress(const std::string& word) {
  if (word == "none") return reporting::Progress::kNone;
  return word == "bar" || (word == "auto" && world::can_redraw_lines()) ? reporting::Progress::kBar : reporting::Progress::kPlain;
}

// `directory`: null on a rank that writes no files.
void add_sinks(reporting::Reporter& reporter, const config::Experiment& experiment, const run::RunDirectory* directory,
               const std::vector<std::string>& class_names, reporting::Progress progress, Logger& logger) {
  if (directory == nullptr) {
    reporter.add(reporting::make_console(logger, reporting::Progress::kPlain, /*colour=*/false));
    return;
  }
  reporter.add(reporting::make_console(logger, progress, world::wants_colour()));
  auto files = std::make_unique<reporting::CheckedReporter>([directory] { directory->check_lock(); });
  files->add(reporting::make_jsonl(directory->metrics_file()));
  files->add(reporting::make_csv(directory->metrics_table_file(), task::all_metrics()));
  if (experiment.logging.tensorboard) files->add(reporting::make_tensorboard(directory->tensorboard_folder()));
  files->add(reporting::make_evaluation(directory->evaluation_file(), class_names, logger));
  files->add(reporting::make_summary(directory->summary_file()));
  reporter.add(std::move(files));
}

// `started`: when this process started.
std::function<bool()> stop_condition(const std::optional<double>& max_minutes, std::chrono::steady_clock::time_point started) {
  return [=] {
    const std::chrono::duration<double, std::ratio<60>> minutes = std::chrono::steady_clock::now() - started;
    return stop_signal() != 0 || (max_minutes && minutes.count() >= *max_minutes);
  };
}

std::filesystem::path run_directory_of(const TrainArguments& arguments, const config::Experiment& experiment) {
  return arguments.run_directory.empty() ? std::filesystem::path(experiment.output_dir) / experiment.experiment : arguments.run_directory;
}

}  // namespace

ExitCode train(const std::vector<std::string>& args) {
  const auto started = std::chrono::steady_clock::now();
  const auto arguments = parse_train_arguments(args);
  session::RankProcess process(arguments.rank_env);
  return process.run([&] {
    session::RankContext context(process, arguments.experiment);
    return context.run([&] {
      const auto& experiment = context.experiment();
      try {
        // After a restart by a launcher, resume from the newest checkpoint of the first attempt.
        const auto resume = process.rank_env().restart_attempt > 0 ? "auto" : arguments.resume;
        session::Session session(context,
                                 {.run_directory = run_directory_of(arguments, experiment), .resume = resume, .command_line = args});
        reporting::Reporter reporter;
        add_sinks(reporter, experiment, session.directory(), session.parts().train.info.class_names, choose_progress(arguments.progress),
                  context.logger());
        const bool done = session.train(reporter, stop_condition(experiment.training.max_minutes, started));
        return done ? ExitCode::kDone : ExitCode::kStopped;
      } catch (const session::FinishedRun&) {
        return ExitCode::kDone;
      }
    });
  });
}

}  // namespace trainer::commands
