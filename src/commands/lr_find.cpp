#include <fmt/format.h>

#include <functional>
#include <limits>

#include "base/signal.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "commands/command.h"
#include "commands/run_end.h"
#include "commands/sample_progress.h"
#include "reporting/plot.h"
#include "reporting/values.h"
#include "run/inspection/lr_range_test.h"
#include "run/rank/rank_context.h"
#include "run/session/session.h"
#include "trainer/events.h"

namespace trainer::commands {
namespace {

using inspection::LrRangeTest;

// Forwards the loss of each step to the test. A step without a loss was skipped, because its loss or gradients were not finite.
class LossReader : public reporting::Sink {
 public:
  // `show`: called with the number of steps.
  LossReader(LrRangeTest& test, std::function<void(int64_t)> show) : test_(test), show_(std::move(show)) {}
  void on_train(const reporting::TrainEvent& event) override { loss_ = reporting::value_of(event.metrics, "loss"); }
  void on_step(int64_t /*step_in_epoch*/, int64_t /*steps_per_epoch*/) override {
    test_.add(loss_.value_or(std::numeric_limits<double>::quiet_NaN()));
    loss_.reset();
    show_(std::ssize(test_.points()));
  }

 private:
  LrRangeTest& test_;
  std::function<void(int64_t)> show_;
  std::optional<double> loss_;
};

// Changes the experiment for the test, which reads the loss of every step, does not validate, and has its own schedule.
void adapt(config::Experiment& experiment, int64_t num_steps) {
  auto& training = experiment.training;
  training.epochs.reset();
  // More steps than the test has, because ranks may stop up to two steps later than requested.
  training.steps = num_steps + 10;
  training.on_non_finite = engine::OnNonFinite::kSkip;
  training.ema.reset();
  training.early_stopping.reset();
  // The test is for the parameters that are trained from the first epoch.
  training.unfreeze_after.reset();
  experiment.lr_scheduler = {.component = optim::lr_scheduler_registry().configure("constant")};
  experiment.validation.every_epochs.reset();
  experiment.validation.every_steps.reset();
  experiment.logging.every_steps = 1;
  experiment.logging.histograms_every_epochs.reset();
}

// Collective. Returns false after a stop request.
bool run_test(rank::RankContext& context, LrRangeTest& test, int64_t num_steps) {
  auto recipe = rank::recipe_of(context);
  double base_lr = 1;
  recipe.parts.lr_factor = [&](int64_t step, int64_t /*total_steps*/) { return test.lr_at(step) / base_lr; };
  session::Session session(context.this_rank(), recipe);
  base_lr = session.parts().network.optimizer->base_lr();
  if (base_lr == 0)
    throw UsageError(context.experiment().place_of("optimizer.lr") +
                     ": the test scales the learning rate, which must not be 0; set it to 1");
  SampleProgress progress("trained", context.logger(), 0, {}, "steps");
  LossReader reader(test, [&](int64_t num_done) {
    if (context.rank() == 0) progress.update(num_done, num_steps);
  });
  session.train(reader, [&] { return test.is_done() || stop_signal() != 0; });
  return test.is_done();
}

reporting::Json to_json(const LrRangeTest& test, bool is_sgd) {
  using reporting::Json;
  auto points = Json::array();
  for (const auto& point : test.points()) points.push_back({{"lr", point.lr}, {"loss", point.loss}, {"smoothed_loss", point.smoothed}});
  const auto advice = test.advice();
  const auto suggestion = advice ? advice->suggestion(is_sgd) : std::nullopt;
  return {{"suggestion", suggestion ? Json(*suggestion) : Json()},
          {"least", advice ? Json(advice->least) : Json()},
          {"rise", advice && advice->rise ? Json(*advice->rise) : Json()},
          {"diverged", test.has_diverged()},
          {"points", std::move(points)}};
}

void print_text(const LrRangeTest& test, bool is_sgd, const inspection::LrRange& range, const config::ExperimentSource& source) {
  const auto& points = test.points();
  if (points.empty())
    throw Error(
        fmt::format("the loss or the gradients of the first step, at a learning rate of {:g}, are not finite, so nothing can be suggested; "
                    "start the training, which saves such a step for `trainer replay`",
                    range.min_lr));
  std::vector<reporting::PlotPoint> curve;
  for (const auto& point : points) curve.push_back({.x = point.lr, .y = point.smoothed});
  const auto advice = test.advice();
  const auto suggestion = advice ? advice->suggestion(is_sgd) : std::nullopt;
  print("{}", reporting::plot(curve, {.x_title = "learning rate",
                                      .y_title = "loss, smoothed",
                                      .width = reporting::plot_width(stdout),
                                      .log_x = true,
                                      .mark_x = suggestion}));
  print("\n{} steps from {:g} to {:g}{}\n", points.size(), points.front().lr, points.back().lr,
        test.has_diverged() ? "; then the loss diverged" : "");
  if (!test.is_done()) return print("Stopped after {} of {} steps, so nothing is suggested.\n", points.size(), range.num_steps);
  if (!advice) return print("No suggestion: the loss does not fall, or the steps are too few; try more --steps, or another --min-lr.\n");
  print("the loss is lowest at a learning rate of {:.2g}{}\n", advice->least,
        advice->rise ? fmt::format("; above {:.2g} the loss exceeds the level from which it began to fall", *advice->rise) : "");
  if (!advice->rise) return print("No suggestion: the loss does not rise again; try a higher --max-lr.\n");
  if (!suggestion) {
    return print(
        "No suggestion: the two learning rates in the line above differ by more than a factor of 10. Choose a learning rate from the "
        "curve, or try more --steps or a larger batch.\n");
  }
  print("suggestion (^), {}: {:.2g}\n",
        is_sgd ? fmt::format("a third of {:.2g}", *advice->rise) : fmt::format("a tenth of {:.2g}", advice->least), *suggestion);
  print("\nTo train: {}\n", training_command(source, /*world_size=*/1, {fmt::format("optimizer.lr={:.2g}", *suggestion)}));
}

}  // namespace

ExitCode lr_find(const std::vector<std::string>& args) {
  CLI::App app(
      "Finds a learning rate: trains from the start while the learning rate grows from step to step, and suggests a value from the "
      "curve of the loss. If stopped by Ctrl-C, it shows the curve so far. Writes no files; under a launcher it runs on all ranks.",
      "trainer lr-find");
  config::ExperimentSource source;
  cli::add_experiment(app, source);
  inspection::LrRange range;
  app.add_option("--min-lr", range.min_lr, "learning rate of the first step; default: 1e-7")->check(CLI::PositiveNumber);
  app.add_option("--max-lr", range.max_lr, "learning rate of the last step; default: 10")->check(CLI::PositiveNumber);
  app.add_option("--steps", range.num_steps, "number of optimizer steps; default: 100")->check(CLI::Range(int64_t{2}, int64_t{1'000'000}));
  bool as_json = false;
  app.add_flag("--json", as_json, "print one JSON value");
  cli::parse(app, args);
  if (range.min_lr >= range.max_lr) {
    throw UsageError(
        fmt::format("--min-lr {:g} is not less than --max-lr {:g}; lower --min-lr, or raise --max-lr", range.min_lr, range.max_lr));
  }

  rank::RankProcess process;
  LrRangeTest test(range);
  bool is_sgd = false;
  const auto work = [&](rank::RankContext& context) {
    const auto& optimizer = context.experiment().optimizer.component.name;
    is_sgd = optimizer == "sgd" || optimizer == "sam";
    return run_test(context, test, range.num_steps) ? ExitCode::kDone : ExitCode::kStopped;
  };
  const auto adapted = process.from_file(source, [&](config::Experiment& experiment) { adapt(experiment, range.num_steps); });
  const auto exit_code = process.run(adapted, work);
  const bool has_curve = exit_code == ExitCode::kDone || (exit_code == ExitCode::kStopped && !test.points().empty());
  if (has_curve && process.rank_env().rank == 0) {
    if (as_json) {
      cli::print_json(to_json(test, is_sgd), 2);
    } else {
      print_text(test, is_sgd, range, source);
    }
  }
  return exit_code;
}

}  // namespace trainer::commands
