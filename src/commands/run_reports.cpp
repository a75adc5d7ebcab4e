#include "commands/run_reports.h"

#include <algorithm>
#include <chrono>

#include "commands/tensorboard_run.h"
#include "reporting/checked_reporter.h"
#include "reporting/sinks.h"
#include "task/task.h"

namespace trainer::commands {
namespace {

// After the files of the run are complete: waits for the program of logging.command.
class EndOfEventCommand : public reporting::Sink {
 public:
  explicit EndOfEventCommand(reporting::EventCommand& command) : command_(command) {}
  void on_end(const reporting::EndEvent& event) override {
    // The other ranks do not know of a failure yet.
    if (event.reason == "failed") command_.finish(std::chrono::seconds(5));
    command_.finish();
  }

 private:
  reporting::EventCommand& command_;
};

}  // namespace

void check_event_command(session::RankContext& context) {
  const auto& experiment = context.experiment();
  const auto& command = experiment.logging.command;
  if (command.empty()) return;
  context.barrier().on_rank0([&] {
    reporting::find_event_command(command.front(), experiment.place_of("logging.command"));
    return std::string();
  });
}

std::unique_ptr<reporting::EventCommand> start_event_command(session::RankContext& context) {
  const auto& experiment = context.experiment();
  const auto& command = experiment.logging.command;
  std::unique_ptr<reporting::EventCommand> started;
  if (command.empty()) return started;
  context.barrier().on_rank0([&] {
    reporting::EventCommandOptions options{.command = command, .place = experiment.place_of("logging.command")};
    // The other ranks wait for this one, which must not seem to hang.
    options.patience = std::min<std::chrono::milliseconds>(options.patience, std::chrono::seconds(experiment.distributed.hang_seconds) / 2);
    started = std::make_unique<reporting::EventCommand>(std::move(options), context.logger());
    return std::string();
  });
  return started;
}

void add_files(reporting::Reporter& reporter, const session::RankContext& context, session::Session& session,
               const run::RunDirectory& directory, reporting::EventCommand* command) {
  const auto& experiment = context.experiment();
  auto files = std::make_unique<reporting::CheckedReporter>([&directory] { directory.check_lock(); });
  files->add(reporting::make_jsonl(directory.metrics_file(), command));
  files->add(reporting::make_csv(directory.metrics_table_file(), task::all_metrics()));
  if (experiment.logging.tensorboard) {
    files->add(reporting::make_tensorboard(directory.tensorboard_folder(),
                                           describe_for_tensorboard(experiment, context.config_text(), session, context.logger()),
                                           &directory.written_files()));
  }
  const auto& class_names = session.parts().train.info.class_names;
  files->add(reporting::make_evaluation(directory.evaluation_file(), reporting::Validations::kAll, class_names, context.logger()));
  files->add(reporting::make_evaluation(directory.best_evaluation_file(), reporting::Validations::kBest, class_names, context.logger()));
  files->add(reporting::make_summary(directory.summary_file(), class_names));
  reporter.add(std::move(files));
  for (const auto& sink : experiment.logging.sinks) {
    reporter.add(reporting::sink_registry().make(
        sink, {.run_dir = directory.path(), .config_text = context.config_text(), .class_names = class_names}));
  }
  if (command != nullptr) reporter.add(std::make_unique<EndOfEventCommand>(*command));
}

}  // namespace trainer::commands
