#include <fmt/format.h>
#include <spdlog/sinks/sink.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/signal.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "commands/run_end.h"
#include "launch/world/host_resources.h"
#include "reporting/event_command.h"
#include "reporting/sinks.h"
#include "run/inspection/step_profiler.h"
#include "run/rank/rank_context.h"
#include "run/session/session.h"
#include "run/version.h"
#include "train/task/task.h"

namespace trainer::commands {
namespace {

using Clock = std::chrono::steady_clock;

struct TrainArguments {
  config::ExperimentSource experiment;
  std::filesystem::path run_directory;
  std::string resume = "auto";
  std::string progress = "auto";
  bool is_quiet = false;
  bool is_verbose = false;
  world::RankFlags rank_env;
};

TrainArguments parse_train_arguments(const std::vector<std::string>& args) {
  TrainArguments arguments;
  CLI::App app("Trains as described in an experiment file.", "trainer train");
  cli::add_experiment(app, arguments.experiment);
  app.add_option("--run-dir", arguments.run_directory, "the run directory; default: <output_dir>/<experiment>")->type_name("DIR");
  app.add_option("--resume", arguments.resume,
                 "auto: resume from the newest complete checkpoint in the run directory, if there is one; none: start a new run; or a "
                 "checkpoint, or another run directory, whose newest checkpoint is used")
      ->type_name("auto|none|FILE|DIR");
  app.add_option("--progress", arguments.progress,
                 "bar (with a table of the epochs), plain (a line every logging.every_steps steps, or every few seconds) or none; "
                 "default: bar on a terminal, else plain")
      ->check(CLI::IsMember({"bar", "plain", "none"}));
  app.add_flag("-q,--quiet", arguments.is_quiet, "print only warnings, errors and the result; the log file has everything");
  app.add_flag("-v,--verbose", arguments.is_verbose,
               "also print the resolved experiment, how long the start took, each checkpoint, and the log messages of other processes");
  cli::add_rank_flags(app, arguments.rank_env);
  cli::parse(app, args);
  if (arguments.is_quiet && arguments.is_verbose) throw UsageError("--quiet and --verbose contradict each other: omit one of them");
  if (arguments.is_quiet && arguments.progress != "auto" && arguments.progress != "none") {
    throw UsageError(fmt::format("--quiet shows no progress, but --progress is {}: omit one of them", arguments.progress));
  }
  return arguments;
}

reporting::Progress choose_progress(const TrainArguments& arguments) {
  const auto& word = arguments.progress;
  if (arguments.is_quiet || word == "none") return reporting::Progress::kNone;
  return word == "bar" || (word == "auto" && world::can_redraw_lines()) ? reporting::Progress::kBar : reporting::Progress::kPlain;
}

// Sets which log messages the terminal shows; files get all of them.
void set_level(Logger& logger, const TrainArguments& arguments) {
  auto& terminal = *logger.sinks().front();
  if (arguments.is_quiet) terminal.set_level(spdlog::level::warn);
  if (arguments.is_verbose) terminal.set_level(spdlog::level::debug);
}

// Called before the log is also written to the run directory, which has the experiment anyway.
void log_experiment(rank::RankContext& context) {
  if (context.rank() != 0) return;
  context.logger().debug("{}", run::version_text());
  context.logger().debug("the experiment with all defaults:\n{}", context.record().text);
}

reporting::ConsoleOptions console_options(rank::RankContext& context, session::Session& session, const TrainArguments& arguments,
                                          const world::RankEnv& rank_env) {
  const auto* directory = session.directory();
  if (directory == nullptr) return {};
  auto metrics = session.parts().network.task->metrics();
  if (context.experiment().validation.is_off()) metrics.validation.clear();
  return {.progress = choose_progress(arguments),
          .colour = world::wants_colour(),
          .metrics = std::move(metrics),
          .with_ema = context.experiment().training.ema.has_value(),
          .is_quiet = arguments.is_quiet,
          .is_verbose = arguments.is_verbose,
          .what_next = [start = RunCommandLine{arguments.experiment, arguments.run_directory, rank_env}, directory,
                        takes_images = session.parts().data.train.samples.files().info().is_image](const reporting::EndEvent& event) {
            return lines_after_run(event, start, *directory, takes_images);
          }};
}

// Null without logging.profile_steps, and on ranks that write no files.
std::unique_ptr<inspection::StepProfiler> make_profiler(const rank::RankContext& context, session::Session& session) {
  const auto& steps = context.experiment().logging.profile_steps;
  if (steps.empty() || session.directory() == nullptr) return nullptr;
  const auto total = session.parts().data.plan.total_steps;
  if (steps[0] >= total) {
    context.logger().warn("{}: the run has {}, so no step after step {} can be profiled; choose a smaller first number",
                          context.experiment().place_of("logging.profile_steps"), counted(total, "step"), steps[0]);
  }
  return std::make_unique<inspection::StepProfiler>(steps[0], steps[1], context.placement().device.is_cuda(),
                                                    session.directory()->profile_file(), context.logger());
}

// Collective: calls `work` on rank 0 if there is a program of logging.command.
void with_event_command(rank::RankContext& context, const std::function<void(reporting::EventCommandOptions)>& work) {
  const auto& experiment = context.experiment();
  if (experiment.logging.command.empty()) return;
  context.barrier().on_rank0([&] {
    reporting::EventCommandOptions options{.command = experiment.logging.command, .place = experiment.place_of("logging.command")};
    // The other ranks wait for this one, which must not appear to hang.
    options.patience = std::min<std::chrono::milliseconds>(options.patience, std::chrono::seconds(experiment.distributed.hang_seconds) / 2);
    work(std::move(options));
    return std::string();
  });
}

// `started`: when this process started.
std::function<bool()> stop_condition(const std::optional<double>& max_minutes, Clock::time_point started) {
  return [=] {
    const std::chrono::duration<double, std::ratio<60>> minutes = Clock::now() - started;
    return stop_signal() != 0 || (max_minutes && minutes.count() >= *max_minutes);
  };
}

std::filesystem::path run_directory_of(const TrainArguments& arguments, const config::Experiment& experiment) {
  return arguments.run_directory.empty() ? std::filesystem::path(experiment.output_dir) / experiment.experiment : arguments.run_directory;
}

}  // namespace

ExitCode train(const std::vector<std::string>& args) {
  const auto started = Clock::now();
  const auto arguments = parse_train_arguments(args);
  rank::RankProcess process(arguments.rank_env);
  set_level(*process.logger(), arguments);
  return process.run(process.from_file(arguments.experiment), [&](rank::RankContext& context) {
    const auto& experiment = context.experiment();
    log_experiment(context);
    try {
      // Before data is loaded.
      with_event_command(context, [](const auto& options) { reporting::find_event_command(options.command.front(), options.place); });
      // After a restart by a launcher, the run continues from the newest checkpoint of the earlier attempts, whatever --resume says.
      const auto resume = process.rank_env().restart_attempt > 0 ? "auto" : arguments.resume;
      auto recipe = rank::recipe_of(context);
      recipe.options.run_directory = run_directory_of(arguments, experiment);
      recipe.resume = resume;
      recipe.record = context.record();
      recipe.record->command_line = args;
      session::Session session(context.this_rank(), recipe);
      context.logger().debug("ready to train {} after the start", format_duration(Clock::now() - started));
      const auto profiler = make_profiler(context, session);
      reporting::Reporter reporter;
      // The message about a profile whose last step was not reached comes before the console's last lines.
      if (profiler) {
        reporter.add(std::make_unique<reporting::AtEnd>([&](const reporting::EndEvent& event) {
          if (event.reason != "failed") profiler->finish();
        }));
      }
      reporter.add(reporting::make_console(context.logger(), console_options(context, session, arguments, process.rank_env())));
      std::unique_ptr<reporting::EventCommand> command;
      with_event_command(context,
                         [&](auto options) { command = std::make_unique<reporting::EventCommand>(std::move(options), context.logger()); });
      session.add_sinks(reporter, command.get());
      if (const auto* directory = session.directory()) {
        const auto& class_names = session.parts().data.train.samples.info().class_names;
        for (const auto& sink : experiment.logging.sinks) {
          reporter.add(reporting::sink_registry().make(
              sink, {.run_dir = directory->path(), .config_text = context.record().text, .class_names = class_names}));
        }
      }
      // After the files of the run are complete. After a failure the other ranks do not know of it yet, so the wait must be short.
      if (command) {
        reporter.add(std::make_unique<reporting::AtEnd>([&](const reporting::EndEvent& event) {
          command->finish(event.reason == "failed" ? std::chrono::seconds(5) : std::chrono::hours(1));
        }));
      }
      std::vector<engine::TrainingHook*> hooks;
      if (profiler) hooks.push_back(profiler.get());
      const bool done = session.train(reporter, stop_condition(experiment.training.max_minutes, started), hooks);
      return done ? ExitCode::kDone : ExitCode::kStopped;
    } catch (const session::FinishedRun&) {
      return ExitCode::kDone;
    }
  });
}

}  // namespace trainer::commands
