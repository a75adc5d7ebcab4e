#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/signal.h"
#include "cli/arguments.h"
#include "commands/command.h"
#include "commands/next_command.h"
#include "commands/output.h"
#include "inspection/lr_range_test.h"
#include "reporting/events.h"
#include "reporting/line.h"
#include "reporting/plot.h"
#include "session/session.h"
#include "world/terminal.h"

namespace trainer::commands {
namespace {

using inspection::LrRangeTest;

// Passes the loss of each step on. A step without one was skipped, because its loss or gradients were not finite.
class LossReader : public reporting::Sink {
 public:
  explicit LossReader(LrRangeTest& test) : test_(test) {}
  void on_train(const reporting::TrainEvent& event) override { loss_ = reporting::value_of(event.metrics, "loss"); }
  void on_step(int64_t /*step_in_epoch*/, int64_t /*steps_per_epoch*/) override {
    test_.add(loss_.value_or(std::numeric_limits<double>::quiet_NaN()));
    loss_.reset();
  }

 private:
  LrRangeTest& test_;
  std::optional<double> loss_;
};

// What the test changes in the experiment: it reads the loss of every step, does not validate, and has a schedule of its own.
std::vector<std::string> overrides_of_test(const std::vector<std::string>& given, int64_t num_steps) {
  auto overrides = given;
  // Ranks agree to stop up to two steps later.
  for (const auto& text :
       {std::string("training.epochs=null"), fmt::format("training.steps={}", num_steps + 10), std::string("training.max_minutes=null"),
        std::string("training.on_non_finite=skip"), std::string("training.ema=null"), std::string("lr_scheduler={name: constant}"),
        std::string("training.early_stopping=null"), std::string("validation.every_epochs=1000000000"),
        std::string("validation.every_steps=null"), std::string("logging.every_steps=1")}) {
    overrides.push_back(text);
  }
  return overrides;
}

// Collective. Returns false when asked to stop.
bool run_test(session::RankContext& context, LrRangeTest& test) {
  session::Session session(context, {.makes_histograms = false});
  auto& parts = session.parts();
  const double base_lr = parts.optimizer->base_lr();
  if (base_lr == 0) throw UsageError(context.experiment().place_of("optimizer.lr") + ": 0 cannot be scaled; set it to 1");
  parts.lr_schedule = {.factor = [&test, base_lr](int64_t step) { return test.lr_at(step) / base_lr; }, .group_factors = {}};
  LossReader reader(test);
  session.train(reader, [&] { return test.is_done() || stop_signal() != 0; });
  return test.is_done();
}

std::string to_json(const LrRangeTest& test) {
  using Json = nlohmann::ordered_json;
  auto points = Json::array();
  for (const auto& point : test.points()) points.push_back({{"lr", point.lr}, {"loss", point.loss}, {"smoothed_loss", point.smoothed}});
  const auto value = [](const std::optional<double>& lr) { return lr ? Json(*lr) : Json(); };
  const Json json = {{"suggestion", value(test.steepest_lr())},
                     {"tenth_of_minimum", value(test.tenth_of_minimum_lr())},
                     {"diverged", test.has_diverged()},
                     {"points", std::move(points)}};
  return json.dump(2);
}

// Whether one learning rate is so much larger than the other that the curve should be looked at.
bool are_far_apart(double a, double b) {
  constexpr double kFar = 30;
  return std::max(a, b) > kFar * std::min(a, b);
}

void print_text(const LrRangeTest& test, const inspection::LrRange& range, const config::ExperimentSource& source) {
  const auto& points = test.points();
  if (points.empty())
    throw Error(
        fmt::format("the loss of the first step, at a learning rate of {:g}, is not finite; nothing can be suggested", range.min_lr));
  std::vector<reporting::PlotPoint> curve;
  for (const auto& point : points) curve.push_back({.x = point.lr, .y = point.smoothed});
  const auto steepest = test.steepest_lr();
  print("{}", reporting::plot(curve, {.x_title = "learning rate",
                                      .y_title = "loss, smoothed",
                                      .width = reporting::plot_width(stdout),
                                      .unicode = world::shows_unicode(),
                                      .log_x = true,
                                      .mark_x = steepest}));
  print("\n{} steps from {:g} to {:g}{}\n", points.size(), points.front().lr, points.back().lr,
        test.has_diverged() ? "; then the loss diverged" : "");
  if (!test.has_diverged()) print("The loss has not diverged; a higher --max-lr shows more.\n");
  const double tenth = *test.tenth_of_minimum_lr();
  print("a tenth of where the loss is least (as fastai): {:.2g}\n", tenth);
  if (!steepest) {
    print("No suggestion: the loss does not fall, or the steps are too few; try more --steps, or another --min-lr.\n");
    return;
  }
  print("suggestion, where the loss falls fastest (^, as Lightning): {:.2g}\n", *steepest);
  if (are_far_apart(*steepest, tenth))
    print("These are far apart: the losses are noisy. Trust the curve, or try more --steps or a larger batch.\n");
  print("\nTo train: {}\n", training_command(source, /*world_size=*/1, {fmt::format("optimizer.lr={:.2g}", *steepest)}));
}

}  // namespace

ExitCode lr_find(const std::vector<std::string>& args) {
  CLI::App app(
      "Finds a learning rate: trains from the start while the learning rate grows from step to step, and shows where the loss falls "
      "fastest. "
      "Writes no files; under a launcher it runs on all ranks.",
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
    throw UsageError(fmt::format("--min-lr {:g} is not below --max-lr {:g}; the learning rate has to grow", range.min_lr, range.max_lr));
  }

  session::RankProcess process;
  return process.run([&] {
    auto tested = source;
    tested.overrides = overrides_of_test(source.overrides, range.num_steps);
    session::RankContext context(process, tested);
    LrRangeTest test(range);
    const auto exit_code = context.run([&] { return run_test(context, test) ? ExitCode::kDone : ExitCode::kStopped; });
    if (exit_code == ExitCode::kDone && context.rank() == 0) {
      if (as_json) {
        print("{}\n", to_json(test));
      } else {
        print_text(test, range, source);
      }
    }
    return exit_code;
  });
}

}  // namespace trainer::commands
